"""What is built for others to install: all of it is in there, and it runs where no compiler is.

Needs the package index, as every installation does.
"""

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.kit.compiled_sources import modules
from tests.kit.product_tree import LINKED, PRODUCT, ROOT, module_name
from tests.packaging.conftest import PROJECT, Installed, tracked

pytestmark = [pytest.mark.long, pytest.mark.disk]
COMPILED = {module_name(path).replace(".", "/") for path in modules()}
VERSION = PROJECT["project"]["version"]
SCRIPT = Path(__file__).with_name("put_and_get.py")
FILTERED = Path(__file__).with_name("filtered.py")
TWO_STORES = Path(__file__).with_name("two_stores.py")


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


def test_a_plain_installation_of_the_two_wheels_has_the_filter(
    built: tuple[Path, Path], library: Path, installed: Installed
) -> None:
    """cqstore's wheel is the one that pip made of the archive. No index gives either of the two."""
    needed = (Requirement(text) for text in PROJECT["project"]["dependencies"])
    installed.install(*(each for each in needed if each.name != "cqstore-rocksdb"))
    folder = installed.root / "wheels"
    shutil.copytree(library, folder)
    shutil.copy2(built[1], folder)
    assert len([*folder.iterdir()]) == 2
    installed.install("--no-index", "--find-links", folder, "cqstore")
    found = json.loads(installed.run(SCRIPT, "compiled"))
    assert found["native"]
    assert found["rocksdb"]["engine"] == "native (auto)"
    assert installed.run("-c", "import cqstore; print(cqstore.__version__)").strip() == VERSION
    installed.pass_tests("tests/store/record", "tests/store/core", "tests/store/index")
    installed.pass_tests("tests/cq_rocksdb/engine/test_rocksdb_tables.py")
    expired = json.loads(installed.run(FILTERED))
    assert expired["filters"]
    assert " 0 units below the log's min offset" in expired["audit"]


def test_without_the_library_rocksdict_is_used_and_says_once_what_it_lacks(
    built: tuple[Path, Path], library: Path, installed: Installed
) -> None:
    """As on a machine for which there is no library."""
    installed.install("--find-links", library, built[1])
    installed.run("-m", "pip", "uninstall", "--quiet", "--yes", "cqstore-rocksdb")
    found = json.loads(installed.run(SCRIPT, "compiled"))
    if not found["rocksdb"]["engine"].startswith("native"):  # the system's library
        assert found["rocksdb"]["engine"].startswith("rocksdict (no compaction filter")
        lines = installed.run(TWO_STORES).splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("no compaction filter for expired units, no cancellation of")
        assert "Install cqstore-rocksdb" in lines[0]


FEW = (
    "tests/store/record/test_records.py",
    "tests/store/core/test_scan.py",
    "tests/store/index/test_index.py",
)


@pytest.mark.parametrize(
    ("extra", "tests"),
    [
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
    built: tuple[Path, Path], library: Path, lmdb_wheel: Path, installed: Installed, extra: str,
    tests: list[str],
) -> None:  # fmt: skip
    found_in = ["--find-links", library, "--find-links", lmdb_wheel]
    installed.install(*found_in, f"cqstore[{extra}] @ {built[1].as_uri()}")
    found = json.loads(installed.run(SCRIPT, "compiled"))
    assert found["rocksdb"]["engine"] == "native (auto)"
    installed.pass_tests(*FEW, *tests)


def test_the_lmdb_backend_is_found_by_its_entry_point(
    built: tuple[Path, Path], library: Path, lmdb_wheel: Path, installed: Installed
) -> None:
    found_in = ["--find-links", library, "--find-links", lmdb_wheel]
    installed.install(*found_in, f"cqstore[lmdb] @ {built[1].as_uri()}")
    found = json.loads(installed.run(SCRIPT, "compiled", "file", "lmdb"))
    assert found["lmdb"]["engine"].startswith("LMDB 0.9.")
    (wheel,) = lmdb_wheel.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = (path for path in (ROOT / "cq_lmdb" / "cqstore_lmdb").iterdir())
    assert names == {f"cqstore_lmdb/{path.name}" for path in sources if path.is_file()}


def test_the_lowest_versions_that_are_allowed(
    built: tuple[Path, Path], library: Path, installed: Installed
) -> None:
    allowed = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    lowest = [
        f"{each.name}=={bound.version}"
        for each in allowed
        for bound in each.specifier
        if bound.operator in {">=", "=="}
    ]
    assert len(lowest) == len(allowed)
    installed.install("--find-links", library, built[1], *dict.fromkeys(lowest))
    json.loads(installed.run(SCRIPT, "compiled"))
    installed.pass_tests(*FEW)


def test_the_source_archive_says_that_it_needs_a_compiler(
    built: tuple[Path, Path], library: Path, installed: Installed
) -> None:
    with pytest.raises(
        AssertionError, match="installing cqstore from source requires a C compiler"
    ):
        installed.install("--find-links", library, built[0])
