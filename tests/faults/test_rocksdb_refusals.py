"""Calls that RocksDB makes are refused: the caller of ours is told, by kind and path."""

import errno
import os
from pathlib import Path

import pytest

from store.config import RocksDBEngine
from store.errors import DiskFullError, StoreFailedError, StoreIOError
from store.record.message import Message
from store.service.message_store import MessageStore
from tests.kit.engines import ENGINES
from tests.kit.faults import EIO, EMFILE, ENOSPC, Faults
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


def check_told(error: StoreIOError, root: Path, code: int) -> None:
    assert os.strerror(code) in error.reason
    assert isinstance(error, DiskFullError) == (code in FULL)
    assert error.path == root / "consumequeue"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("call", "part", "code"), OPENING)
def test_an_opening_that_is_refused_is_told_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    engine: RocksDBEngine, call: str, part: str, code: int,
) -> None:  # fmt: skip
    faults = Faults(monkeypatch)
    faults.fail(call, code, part)
    with pytest.raises(StoreIOError) as caught:
        open_store(tmp_path, engine)
    assert faults.refused
    check_told(caught.value, tmp_path, code)
    faults.heal()
    with open_store(tmp_path, engine) as store:
        assert store.put_message(Message("t", b"x")).ok


@pytest.mark.parametrize("code", [*FULL, EIO, EMFILE])
def test_a_file_of_rocksdicts_own_that_is_refused_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    faults = Faults(monkeypatch)
    faults.fail("write", code, "rocksdict-config.json")
    with pytest.raises(StoreIOError) as caught:
        open_store(tmp_path, RocksDBEngine.ROCKSDICT)
    check_told(caught.value, tmp_path, code)
    faults.heal()
    open_store(tmp_path, RocksDBEngine.ROCKSDICT).close()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("call", "part", "code"), FLUSH)
def test_a_flush_that_is_refused_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    engine: RocksDBEngine, call: str, part: str, code: int,
) -> None:  # fmt: skip
    faults = Faults(monkeypatch)
    store = open_store(tmp_path, engine)
    for number in range(3):
        assert store.put_message(Message("t", b"%d" % number)).ok
    faults.fail(call, code, part)
    with pytest.raises(StoreIOError) as caught:
        store.flush()
    assert faults.refused
    check_told(caught.value, tmp_path, code)
    faults.heal()
    with pytest.raises(StoreFailedError):
        store.put_message(Message("t", b"after"))
    store.close()
    with open_store(tmp_path, engine) as store:
        assert store.max_offset("t", 0) == 3
