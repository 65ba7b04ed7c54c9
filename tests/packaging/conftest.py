"""What tests of packages share: archive and wheel, built once a run, and new environments."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from library_wheel import make_wheel, pinned
from make_wheels import jar_at_hand, platform_pin
from packaging.requirements import Requirement

from tests.kit.once import made_once
from tests.kit.product_tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASED = PROJECT["tool"]["cibuildwheel"]["environment"]
_NEEDED = {"pytest", "pytest-xdist", "pytest-timeout", "hypothesis"}
DEV = [Requirement(text) for text in PROJECT["project"]["optional-dependencies"]["dev"]]
TOOLS = [str(each) for each in DEV if each.name in _NEEDED]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout: nothing is in there that is not in the repository."""
    root = tmp_path_factory.mktemp("sources")
    for name in tracked():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return root


@pytest.fixture(scope="session")
def built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return source archive and wheel, built once a run; pip makes the wheel of the archive."""

    def build(target: Path) -> None:
        command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(target), str(sources)]
        subprocess.run(command, check=True, capture_output=True, env=outside())
        (archive,) = target.glob("*.tar.gz")
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(target)]
        environment = outside() | {"CFLAGS": RELEASED["CFLAGS"]}
        done = subprocess.run(
            [*command, str(archive)], check=False, capture_output=True, env=environment, text=True
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    target = made_once(tmp_path_factory, "dist", build)
    (archive,) = target.glob("*.tar.gz")
    (wheel,) = target.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel of RocksDB's library for this machine, which cqstore needs."""
    folder = tmp_path_factory.mktemp("library")
    pin = platform_pin(pinned()[2])
    assert pin is not None
    make_wheel(jar_at_hand(folder), pin, folder / "wheels")
    return folder / "wheels"


@pytest.fixture(scope="session")
def lmdb_wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel of the LMDB backend, made of what is in the repository."""
    folder = tmp_path_factory.mktemp("lmdb")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(sources / "cq_lmdb")]
    subprocess.run(command, check=True, capture_output=True, env=outside())
    return folder


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [
        name for name in done.stdout.decode().split("\0") if name and os.path.lexists(ROOT / name)
    ]


def outside() -> dict[str, str]:
    """Return an environment that leads to nothing of this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@dataclass
class Installed:
    """A new environment; no program is on its path."""

    root: Path

    def run(self, *command: object, cwd: Path | None = None) -> str:
        """Run Python there, which must end well; return what it printed."""
        line = [str(self.root / "venv" / "bin" / "python"), *map(str, command)]
        (self.root / "nothing").mkdir(exist_ok=True)
        environment = outside() | {"PATH": str(self.root / "nothing"), "CC": "no-compiler-is-here"}
        done = subprocess.run(
            line, env=environment, cwd=cwd or self.root, capture_output=True, check=False, text=True
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def install(self, *what: object) -> None:
        """Install, from the package index as every installation."""
        self.run("-m", "pip", "install", "--quiet", *what)

    def pass_tests(self, *words: str) -> None:
        """Run tests of the checkout, which lies elsewhere, over what is installed."""
        self.install(*TOOLS)
        for folder in ("tests", "tools"):
            shutil.copytree(ROOT / folder, self.root / folder, dirs_exist_ok=True)
        shutil.copy2(ROOT / "pyproject.toml", self.root)
        chosen = ["-q", "-p", "no:cacheprovider", "-m", "not long and not slow and not interop"]
        assert " passed" in self.run("-m", "pytest", *chosen, *words)
        where = self.run("-c", "import cqstore; print(cqstore.__file__)").strip()
        assert Path(where).is_relative_to(self.root / "venv")


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    venv.create(tmp_path / "venv", with_pip=True)
    return Installed(tmp_path)
