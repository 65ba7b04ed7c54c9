"""What a type checker finds in a program that uses the installed wheel: its mistakes, and no other.

Needs the package index, and for pyright Node.js and the registry of its packages.
"""

import json
import re
import shutil
import subprocess
import venv
from importlib import import_module
from pathlib import Path

import pytest

from tests.meta.test_public_names import PACKAGES, exported
from tests.packaging.conftest import Installed, outside

pytestmark = [pytest.mark.long, pytest.mark.disk, pytest.mark.timeout(3600)]  # builds a wheel
TYPED = Path(__file__).with_name("typed")
USES = (TYPED / "uses.py").read_text(encoding="utf-8")
MISTAKES = (TYPED / "mistakes.txt").read_text(encoding="utf-8")
MARKED = [at for at, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# mistake")]
NEEDS_SPARK = {"cqstore.analysis", "cqstore.spark"}
"""Their types are Spark's, which is not installed here."""


def names_file() -> str:
    """Return a program that has a variable of each public name."""
    lines = []
    for package in PACKAGES:
        if package not in NEEDS_SPARK:
            lines.append(f"import {package}")
            lines += [f"{package}.{name}" for name in sorted(exported(package))]
    return "\n".join(f"print({line})" if "import" not in line else line for line in lines) + "\n"


@pytest.fixture(scope="module")
def programs(
    built: tuple[Path, Path], library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Return an environment with the wheel and the checkers, and the programs in its folder."""
    root = tmp_path_factory.mktemp("typed")
    venv.create(root / "venv", with_pip=True)
    installed = Installed(root)
    installed.install("--find-links", library, f"{built[1]}[metrics]", "mypy", "pyright")
    (installed.root / "uses.py").write_text(USES, encoding="utf-8")
    (installed.root / "mistakes.py").write_text(MISTAKES, encoding="utf-8")
    (installed.root / "names.py").write_text(names_file(), encoding="utf-8")
    return installed


def checked(programs: Installed, *command: str) -> str:
    """Run a checker, which finds mistakes; return what it printed."""
    python = programs.root / "venv" / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", *command, "uses.py", "names.py", "mistakes.py"], cwd=programs.root,
        env=outside(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_mypy_finds_the_mistakes_and_no_other(programs: Installed) -> None:
    found = checked(programs, "mypy", "--strict", "--no-pretty", "--no-error-summary")
    lines = [line for line in found.splitlines() if " note: " not in line]
    assert [line for line in lines if not line.startswith("mistakes.py:")] == []
    places = {int(line.split(":")[1]) for line in lines}
    assert places == {*MARKED}, found


def test_pyright_finds_the_mistakes_and_no_other(programs: Installed) -> None:
    if shutil.which("node") is None:
        pytest.skip("no Node.js, which pyright runs on")
    python = str(programs.root / "venv" / "bin" / "python")
    report = json.loads(checked(programs, "pyright", "--pythonpath", python, "--outputjson"))
    faults = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    others = [each for each in faults if not each["file"].endswith("/mistakes.py")]
    assert others == []
    assert {each["range"]["start"]["line"] + 1 for each in faults} == {*MARKED}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_programs_use_every_public_name(package: str) -> None:
    names = {*import_module(package).__all__}
    if package == "cqstore":
        names.add("open")  # not in ``__all__``: ``import *`` leaves ``open`` as it is
    below = {each.removeprefix(f"{package}.") for each in PACKAGES} - {package}
    used = {*re.findall(rf"{package}\.(\w+)", names_file())} - below
    assert names == used or package in NEEDS_SPARK


def test_a_mistake_is_made_in_each_kind_of_call() -> None:
    assert len(MARKED) > 20
