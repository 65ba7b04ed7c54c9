"""A database that is opened by its first write, for several threads."""

import threading
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter, Row
from cqstore.cq_rocksdb.engine.shared_writer import SharedWriter
from cqstore.store.errors import NestedCallError, StoreClosedError
from cqstore.store.paths import StorePaths
from tests.kit.waiting import run_threads


def rows_of(root: Path) -> dict[bytes, bytes]:
    with RawDatabase(root / "config" / "db") as database:
        return dict(database.items("default"))


def test_the_first_write_opens_it_and_later_ones_wait_for_each_other(tmp_path: Path) -> None:
    shared = SharedWriter(StorePaths(tmp_path), "db")
    assert not (tmp_path / "config").exists()

    def add(_: RawWriter) -> list[Row]:
        found = rows_of(tmp_path).get(b"k", b"0") if (tmp_path / "config").exists() else b"0"
        return [("default", b"k", b"%d" % (int(found) + 1))]

    threads = [threading.Thread(target=shared.write, args=(add,)) for _ in range(8)]
    run_threads(threads)
    assert rows_of(tmp_path) == {b"k": b"8"}
    shared.close()


def test_a_close_within_a_write_is_done_at_the_end_of_the_write(tmp_path: Path) -> None:
    """As a signal's handler calls it, in the thread that writes."""
    shared = SharedWriter(StorePaths(tmp_path), "db")

    def rows(_: RawWriter) -> list[Row]:
        shared.close()
        with pytest.raises(NestedCallError):
            shared.write(lambda _: [])
        return [("default", b"k", b"v")]

    shared.write(rows)
    assert rows_of(tmp_path) == {b"k": b"v"}
    with pytest.raises(StoreClosedError):
        shared.write(rows)
    RawWriter(StorePaths(tmp_path), tmp_path / "config" / "db", ()).close()  # it is released
