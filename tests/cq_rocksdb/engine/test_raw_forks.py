"""A process that has used rocksdict forks: the child may read, and what would hang is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.raw_builder import build_database
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter
from cqstore.store.errors import StoreStateError
from cqstore.store.paths import StorePaths
from tests.kit.forks import forked

ROWS = {"default": [(b"key", b"value")]}


def read(root: Path) -> None:
    with RawDatabase(root / "db") as database:
        assert [*database.items("default")] == ROWS["default"]


def build(root: Path) -> None:
    build_database(root / "built", ROWS)


def write(root: Path) -> None:
    RawWriter(StorePaths(root), root / "db", ()).close()


USES: dict[str, Callable[[Path], None]] = {"read": read, "build": build, "write": write}


def use_and_fork(root: Path, use: str) -> None:
    """Run in a process of its own, in which no other test has used rocksdict."""
    USES[use](root)
    assert forked(lambda: read(root)) == 0
    before = sorted(root.rglob("*"))
    for name in ("build", "write"):

        def refused(name: str = name) -> None:
            with pytest.raises(StoreStateError, match="before this process was forked"):
                USES[name](root / "of_the_child" if name == "build" else root)

        assert forked(refused) == 0, name
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("use", USES)
def test_a_child_reads_and_is_refused_what_would_hang(tmp_path: Path, use: str) -> None:
    build_database(tmp_path / "db", ROWS)
    code = f"from {__name__} import *; use_and_fork(Path({str(tmp_path)!r}), {use!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
