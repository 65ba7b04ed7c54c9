"""An open database of any families: each write is durable, and all or nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.raw_builder import build_database
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter
from cqstore.store.errors import (
    CorruptionError,
    DiskFullError,
    StoreError,
    StoreIOError,
    StoreLockedError,
    StoreStateError,
)
from cqstore.store.paths import StorePaths
from tests.kit.faults import EIO, ENOSPC, Faults
from tests.kit.forks import forked
from tests.kit.nth_call import Case, NthCall

FAMILIES = ("default", "version")
ROWS = 50


def writer(root: Path) -> RawWriter:
    return RawWriter(StorePaths(root), root / "db", FAMILIES)


def put(database: RawWriter, number: int) -> None:
    """Write ``number`` to each row of two families, and delete the row of the number before."""
    rows = [("default", b"row %d" % row, b"%d" % number) for row in range(ROWS)]
    names = [
        ("default", b"number %d" % number, b""),
        ("default", b"number %d" % (number - 1), None),
    ]
    database.write([*rows, *names, ("version", b"v", b"%d" % number)])


def numbers(root: Path) -> set[int]:
    """Return the numbers in all rows: one, unless a write was done in part."""
    with RawDatabase(root / "db") as database:
        assert database.fault is None
        rows = dict(database.items("default"))
        found = {int(rows.pop(b"row %d" % row)) for row in range(ROWS) if rows}
        found |= {int(key.split()[1]) for key in rows}
        return found | {int(value) for _, value in database.items("version")}


def test_rows_are_there_when_a_write_returns(tmp_path: Path) -> None:
    database = writer(tmp_path)
    for number in (1, 2):
        put(database, number)
        assert numbers(tmp_path) == {number}
    assert database.keys(b"row 4") == [
        b"row 4", *(b"row %d" % row for row in range(40, 50)),
    ]  # fmt: skip
    assert database.keys(b"s") == []
    database.close()
    database.close()
    with pytest.raises(StoreStateError, match="closed"):
        put(database, 3)
    again = writer(tmp_path)
    put(again, 3)
    again.close()
    assert numbers(tmp_path) == {3}


def test_rows_and_families_that_are_there_stay(tmp_path: Path) -> None:
    build_database(tmp_path / "db", {"theirs": [(b"k", b"v")], "default": [(b"old", b"row")]})
    database = writer(tmp_path)
    database.write([("version", b"v", b"1")])
    database.close()
    with RawDatabase(tmp_path / "db") as found:
        assert found.families == {"default", "theirs", "version"}
        assert [*found.items("theirs")] == [(b"k", b"v")]
        assert [*found.items("default")] == [(b"old", b"row")]


def test_each_write_is_synced_once(tmp_path: Path) -> None:
    database = writer(tmp_path)
    with NthCall(tmp_path) as calls:
        for number in range(1, 6):
            put(database, number)
        assert calls.foreign["fdatasync"] == 5
    database.close()


def test_the_log_does_not_grow_without_limit(tmp_path: Path) -> None:
    """The version's family is small: only its share of the log makes RocksDB flush it."""
    database = writer(tmp_path)
    for number in range(60):
        row = ("default", b"%d" % (number % 3), os.urandom(1 << 20))
        database.write([row, ("version", b"v", b"%d" % number)])
    logged = sum(path.stat().st_size for path in (tmp_path / "db").glob("*.log"))
    assert logged < 32 << 20
    database.close()


@pytest.mark.parametrize(("call", "code"), [("write", ENOSPC), ("write", EIO), ("fsync", EIO)])
def test_a_write_that_is_refused_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    database = writer(tmp_path)
    put(database, 1)
    faults = Faults(monkeypatch)
    faults.fail(call, code, ".log")
    with pytest.raises(StoreIOError, match=os.strerror(code)) as caught:
        put(database, 2)
    assert isinstance(caught.value, DiskFullError) == (code == ENOSPC)
    assert caught.value.path == tmp_path / "db"
    faults.heal()
    database.close()
    assert numbers(tmp_path) in ({1}, {2})
    again = writer(tmp_path)  # while the error is kept
    put(again, 2)
    again.close()
    assert numbers(tmp_path) == {2}


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    build_database(tmp_path / "db", {"default": [(b"k", b"v")]})
    (table,) = (tmp_path / "db").glob("*.sst")
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="RocksDB cannot open the database") as caught:
        writer(tmp_path)
    assert caught.value.path == tmp_path / "db"


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    database = writer(tmp_path)
    with pytest.raises(StoreLockedError):
        writer(tmp_path)
    put(database, 1)
    database.close()
    writer(tmp_path).close()


def test_a_child_writes_nothing_and_the_parent_goes_on(tmp_path: Path) -> None:
    database = writer(tmp_path)
    put(database, 1)

    def child() -> int:
        try:
            put(database, 2)
        except StoreStateError:
            database.close()
            return 7
        return 0

    assert forked(child) == 7
    put(database, 2)
    database.close()
    assert numbers(tmp_path) == {2}


CHILD = """
import sys
from pathlib import Path
from tests.cq_rocksdb.engine.test_raw_writer import put, writer
database, number = writer(Path(sys.argv[1])), int(sys.argv[2])
while True:
    number += 1
    put(database, number)
    print(number, flush=True)
"""


def test_a_kill_leaves_all_of_a_write_or_nothing(tmp_path: Path) -> None:
    number = 0
    for lines in (1, 7, 200):
        words = [sys.executable, "-c", CHILD, str(tmp_path), str(number)]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
        ) as child:
            assert child.stdout is not None
            told = [int(child.stdout.readline()) for _ in range(lines)]
            child.kill()
            told += [int(line) for line in child.stdout if line.endswith(b"\n")]
        assert child.returncode == -signal.SIGKILL
        (number,) = numbers(tmp_path)
        assert number in {told[-1], told[-1] + 1}


def work(root: Path) -> int:
    """Open, write twice, and close; return the last number that was acknowledged."""
    acknowledged = 0
    try:
        database = writer(root)
        try:
            for number in (1, 2):
                put(database, number)
                acknowledged = number
        finally:
            database.close()
    except StoreError as exc:
        check_names(exc, root)
    return acknowledged


def check_names(exc: StoreError, root: Path) -> None:
    assert exc.path is not None, exc
    assert exc.path.is_relative_to(root), exc


@pytest.mark.long
@pytest.mark.parametrize("call", ["open", "write", "fsync", "fdatasync", "rename", "mkdir"])
def test_a_fault_in_any_call_loses_nothing(tmp_path: Path, call: str) -> None:
    number, struck = 0, True
    with NthCall(tmp_path) as calls:
        while struck:
            number += 1
            root = tmp_path / str(number)
            calls.arm(Case(call, number, ENOSPC))
            acknowledged = work(root)
            calls.heal()
            struck = bool(calls.struck)
            again = writer(root)
            again.close()
            found = numbers(root) if acknowledged else {0}
            assert max(found, default=0) >= acknowledged, (number, found)
            assert len(found) == 1, (number, found)
    assert number > 1
