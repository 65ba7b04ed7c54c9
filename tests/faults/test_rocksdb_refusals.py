"""Calls that RocksDB makes are refused: the caller of ours is told, by kind and path."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.cq_rocksdb.engine.raw_builder import build_database
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.errors import DiskFullError, StoreFailedError, StoreIOError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES, using
from tests.kit.faults import EIO, EMFILE, ENOSPC, Faults
from tests.kit.rocksdb_queues import RocksDBQueues, phys, put
from tests.kit.told import CONFIG

FULL = [ENOSPC, errno.EDQUOT, errno.EFBIG]
OPENING = [
    ("write", "MANIFEST-", EIO),
    ("fsync", ".dbtmp", ENOSPC),
    ("rename", ".dbtmp", errno.EDQUOT),
]
FLUSH = [
    ("write", ".sst", errno.EDQUOT),
    ("fsync", "MANIFEST-", EIO),
    *[
        pytest.param(*refused, marks=pytest.mark.long)  # RocksDB waits a second after each
        for refused in (
            ("open", ".sst", EMFILE), ("fsync", ".sst", EIO), ("write", "MANIFEST-", ENOSPC),
        )
    ],
]  # fmt: skip


def open_store(root: Path, engine: RocksDBEngine) -> MessageStore:
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    return MessageStore.open(root, config, backend="rocksdb", housekeeping=False)


def check_reported(error: StoreIOError, folder: Path, code: int) -> None:
    assert os.strerror(code) in error.reason
    assert isinstance(error, DiskFullError) == (code in FULL)
    assert error.path == folder


@contextmanager
def refused(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int, part: str
) -> Iterator[pytest.ExceptionInfo[StoreIOError]]:
    """Refuse a call in the block, which is told of it; then no more."""
    faults = Faults(monkeypatch)
    faults.fail(call, code, part)
    with pytest.raises(StoreIOError) as caught:
        yield caught
    assert faults.refused
    faults.heal()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("call", "part", "code"), OPENING)
def test_an_opening_that_is_refused_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    engine: RocksDBEngine, call: str, part: str, code: int,
) -> None:  # fmt: skip
    with refused(monkeypatch, call, code, part) as caught:
        open_store(tmp_path, engine)
    check_reported(caught.value, tmp_path / "consumequeue", code)
    with open_store(tmp_path, engine) as store:
        assert store.put_message(Message("t", b"x")).ok


@pytest.mark.parametrize("call", ["open", "write"])
@pytest.mark.parametrize("code", [*FULL, EIO, EMFILE])
def test_a_file_of_rocksdicts_own_that_is_refused_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    with refused(monkeypatch, call, code, "rocksdict-config.json") as caught:
        open_store(tmp_path, RocksDBEngine.ROCKSDICT)
    check_reported(caught.value, tmp_path / "consumequeue", code)
    open_store(tmp_path, RocksDBEngine.ROCKSDICT).close()


@pytest.mark.parametrize(
    ("call", "part", "code"),
    [("open", "rocksdict-config.json", ENOSPC), ("open", "rocksdict-config.json", EMFILE),
     ("write", "rocksdict-config.json", errno.EDQUOT), ("write", ".sst", ENOSPC),
     ("fsync", ".sst", EIO), ("write", "MANIFEST-", errno.EFBIG)],
)  # fmt: skip
def test_a_database_that_cannot_be_built_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, part: str, code: int
) -> None:
    with refused(monkeypatch, call, code, part) as caught:
        build_database(tmp_path / "db", {"default": [(b"key", b"value")]})
    check_reported(caught.value, tmp_path / "db", code)
    shutil.rmtree(tmp_path / "db")  # and once more, while the error is kept
    build_database(tmp_path / "db", {"default": [(b"key", b"value")]})
    with RawDatabase(tmp_path / "db") as database:
        assert [*database.items("default")] == [(b"key", b"value")]


@pytest.mark.parametrize("code", [ENOSPC, errno.EDQUOT, EMFILE])
@pytest.mark.parametrize("call", ["open", "write"])
def test_a_database_that_cannot_be_looked_at_for_a_full_folder_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """The folder of links, and what rocksdict writes there, lie among temporary files."""
    build_database(tmp_path / "db", {"default": [(b"key", b"value")]})
    with refused(monkeypatch, call, code, "rocksdict-config.json") as caught:
        RawDatabase(tmp_path / "db")
    check_reported(caught.value, tmp_path / "db", code)
    with RawDatabase(tmp_path / "db") as database:
        assert [*database.items("default")] == [(b"key", b"value")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("call", "part", "code"), FLUSH)
def test_a_flush_that_is_refused_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    engine: RocksDBEngine, call: str, part: str, code: int,
) -> None:  # fmt: skip
    store = open_store(tmp_path, engine)
    for number in range(3):
        assert store.put_message(Message("t", b"%d" % number)).ok
    with refused(monkeypatch, call, code, part) as caught:
        store.flush()
    check_reported(caught.value, tmp_path / "consumequeue", code)
    with pytest.raises(StoreFailedError):
        store.put_message(Message("t", b"after"))
    store.close()
    with open_store(tmp_path, engine) as store:
        assert store.max_offset("t", 0) == 3


@pytest.mark.long  # RocksDB waits a second
@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_that_rocksdb_refuses_moves_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: RocksDBEngine
) -> None:
    queues = RocksDBQueues(tmp_path)
    with using(engine):
        store = queues.open()
        put(store, "t", 0, range(3), 0)
        with refused(monkeypatch, "fsync", EIO, "MANIFEST-"):
            store.engine.flush()  # behind the store's back: RocksDB takes no write from here on
        with pytest.raises(RocksDBError):
            put(store, "t", 0, range(3, 5), 300)
        assert store.queue("t", 0).max_offset() == 3
        assert store.dispatch_from_phy_offset() == 300
        with pytest.raises(StoreFailedError):
            put(store, "t", 0, range(3, 5), 300)
        with suppress(StoreIOError):  # rocksdict flushes
            store.close()
        again = queues.open()
        done = again.queue("t", 0).max_offset()
        put(again, "t", 0, range(done, 5), 100 * done)
        assert phys(again, "t", 0) == [0, 100, 200, 300, 400]
        again.close()
