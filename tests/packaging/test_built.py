"""What is built for others to install: all of it is in there, and it runs where no compiler is.

Needs the package index, as every installation does.
"""

import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from library_wheel import make_wheel, pinned
from make_wheels import jar_at_hand, platform_pin
from packaging.requirements import Requirement

from tests.kit.compiled_sources import modules
from tests.kit.product_tree import LINKED, PRODUCT, ROOT, module_name
from tests.packaging.conftest import PROJECT, Installed, tracked

pytestmark = [pytest.mark.long, pytest.mark.disk]
COMPILED = {module_name(path).replace(".", "/") for path in modules()}
VERSION = PROJECT["project"]["version"]
SCRIPT = Path(__file__).with_name("put_and_get.py")


def of_packages() -> set[str]:
    """Return the tracked files of the product, by the paths under which they are installed."""
    found = (Path(name) for name in tracked())
    return {
        f"cqstore/{path}" if path.parts[0] in LINKED else str(path)
        for path in found
        if path.parts[0] in PRODUCT and not (ROOT / path).is_symlink()
    }


def test_the_wheel_holds_the_product_the_compiled_modules_and_no_more(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == of_packages()
    assert {name.split(".")[0] for name in compiled} == COMPILED
    assert len(compiled) == len(COMPILED)
    assert "cqstore/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"cqstore"}


def test_the_source_archive_holds_what_the_wheel_is_made_of(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert of_packages() <= names
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith(("tests/", "tools/"))]
    assert not [name for name in names if name.endswith((".so", ".c"))]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel of RocksDB's library for this machine."""
    folder = tmp_path_factory.mktemp("library")
    pin = platform_pin(pinned()[2])
    assert pin is not None
    make_wheel(jar_at_hand(folder), pin, folder / "wheels")
    return folder / "wheels"


def test_the_source_archive_runs_once_it_is_compiled_where_no_compiler_and_no_extra_is(
    built: tuple[Path, Path], installed: Installed
) -> None:
    """What is installed is the wheel that pip made of the archive."""
    installed.install(built[1])
    found = json.loads(installed.run(SCRIPT, "compiled"))
    assert found["native"]
    assert installed.run("-c", "import cqstore; print(cqstore.__version__)").strip() == VERSION
    installed.pass_tests("tests/store/record", "tests/store/core", "tests/store/index")


FEW = (
    "tests/store/record/test_records.py",
    "tests/store/core/test_scan.py",
    "tests/store/index/test_index.py",
)


@pytest.mark.parametrize(
    ("extra", "tests"),
    [
        ("native", ["tests/cq_rocksdb/engine/test_rocksdb_choice.py"]),
        ("metrics", ["tests/store/service/test_prometheus.py"]),
        ("ab", ["tests/ab/test_intervals.py"]),
        ("report", []),
        ("spark", ["tests/spark/test_java_notes.py"]),
        ("arrow", ["tests/analysis/test_scan_streams.py"]),
        ("iceberg", ["tests/analysis/archive/test_iceberg.py"]),
        ("all", ["tests/cq_rocksdb/engine/test_rocksdb_choice.py"]),
    ],
)
def test_each_extra_alone(
    built: tuple[Path, Path], library: Path, installed: Installed, extra: str, tests: list[str]
) -> None:
    installed.install("--find-links", library, f"cqstore[{extra}] @ {built[1].as_uri()}")
    found = json.loads(installed.run(SCRIPT, "compiled"))
    engine = found["rocksdb"]["engine"]
    # pyspark's jar has a library too, and so may the system.
    assert engine.startswith("native" if extra in {"native", "all", "spark"} else "")
    installed.pass_tests(*FEW, *tests)


def test_the_lowest_versions_that_are_allowed(
    built: tuple[Path, Path], installed: Installed
) -> None:
    allowed = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    lowest = [
        f"{each.name}=={bound.version}"
        for each in allowed
        for bound in each.specifier
        if bound.operator in {">=", "=="}
    ]
    assert len(lowest) == len(allowed)
    installed.install(built[1], *lowest)
    json.loads(installed.run(SCRIPT, "compiled"))
    installed.pass_tests(*FEW)


def test_the_source_archive_says_that_it_needs_a_compiler(
    built: tuple[Path, Path], installed: Installed
) -> None:
    with pytest.raises(
        AssertionError, match="installing cqstore from source requires a C compiler"
    ):
        installed.install(built[0])
