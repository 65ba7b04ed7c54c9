"""What is built for others to install: all of it is in there, and it runs where no compiler is.

Needs the package index, as every installation does.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.kit.pages import ROOT

pytestmark = pytest.mark.long
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
PACKAGES = tuple(name.rstrip("*") for name in SETUPTOOLS["packages"]["find"]["include"])
COMPILED = {module["name"].replace(".", "/") for module in SETUPTOOLS["ext-modules"]}
SCRIPT = Path(__file__).with_name("put_and_get.py")


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout: nothing is in there that is not in the repository."""
    root = tmp_path_factory.mktemp("sources")
    for name in tracked():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return root


@pytest.fixture(scope="session")
def built(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return source archive and wheel; the wheel is made of what the archive holds."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(target), str(sources)]
    subprocess.run(command, check=True, capture_output=True, env=outside())
    (archive,) = target.glob("*.tar.gz")
    (wheel,) = target.glob("*.whl")
    return archive, wheel


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [name for name in done.stdout.decode().split("\0") if (ROOT / name).is_file()]


def outside() -> dict[str, str]:
    """Return an environment that leads to nothing of this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def of_packages() -> set[str]:
    return {name for name in tracked() if name.split("/")[0] in PACKAGES}


def test_every_package_of_the_project_is_named(sources: Path) -> None:
    found = {path.parent.name for path in sources.glob("*/__init__.py")}
    assert found - {"tests", "bench", "mutants"} == set(PACKAGES)


def test_the_wheel_holds_every_file_of_every_package_the_compiled_ones_and_no_more(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == of_packages()
    assert {name.split(".")[0] for name in compiled} == COMPILED
    assert len(compiled) == len(COMPILED)
    assert "store/py.typed" in names


def test_the_source_archive_holds_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert of_packages() <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]
    assert not [name for name in names if name.endswith((".so", ".c"))]


def test_the_wheel_runs_where_no_compiler_is(built: tuple[Path, Path], tmp_path: Path) -> None:
    found = run_installed(tmp_path, built[1], "compiled")
    assert found["native"]
    assert [found[backend]["core"] for backend in ("file", "rocksdb")] == ["compiled"] * 2


def test_the_source_archive_says_that_it_needs_a_compiler(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="needs a C compiler for that"):
        run_installed(tmp_path, built[0])


def run_installed(tmp_path: Path, built: Path, *words: str) -> Any:
    """Install into a new environment, and run the script there; no program is on the path."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "nothing").mkdir()
    environment = outside() | {"PATH": str(tmp_path / "nothing"), "CC": "no-compiler-is-here"}

    def run(*command: str) -> bytes:
        line = [str(python), *command]
        done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    run("-m", "pip", "install", "--quiet", str(built))
    return json.loads(run(str(SCRIPT), *words))
