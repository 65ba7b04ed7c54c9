"""A MANIFEST that ends after one of its records: RocksDB opens it as it once was."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from cqstore import CorruptionError, Message, MessageStore, StoreConfig, StoreError
from cqstore.store.record.message import SysFlag
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.commands import cqstore, run
from tests.kit.engines import ENGINES
from tests.kit.tree import unchanged

COUNT = 300
_HEAD = struct.Struct("<IHB")
"""Of a record in a file of RocksDB's: CRC, length, type."""


def settings(engine: RocksDBEngine) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=1 << 20, rocksdb_memory_bytes=16 << 20, rocksdb_engine=engine
    )


def manifest(root: Path) -> Path:
    return next((root / "consumequeue").glob("MANIFEST-*"))


def record_ends(data: bytes) -> list[int]:
    ends, at = [], 0
    while at + _HEAD.size <= len(data):
        _, length, kind = _HEAD.unpack_from(data, at)
        if not kind:
            break
        at += _HEAD.size + length
        ends.append(at)
    return ends


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cut_manifest_never_reads_as_fewer_units(tmp_path: Path, engine: RocksDBEngine) -> None:
    root, config = tmp_path / "made", settings(engine)
    with MessageStore.open(root, config, backend="rocksdb") as store:
        for _ in range(COUNT):
            assert store.put_message(Message("t", b"x" * 50)).ok
    data = manifest(root).read_bytes()
    *cuts, end = record_ends(data)
    opened_as_it_was = 0
    for cut in cuts:
        again = tmp_path / "again"
        shutil.copytree(root, again)
        manifest(again).write_bytes(data[:cut])
        with unchanged(again):
            fault = None
            try:
                whole(again, config)  # which has all, or is refused
            except StoreError as exc:
                fault = exc
        if "lack records" in str(fault):
            opened_as_it_was += 1
            assert isinstance(fault, CorruptionError)
            assert fault.path == again / "consumequeue"
            done = cqstore("check", again, "--output", "json", code=1)
            (row,) = json.loads(done.stdout)
            assert (row["severity"], row["path"]) == ("damage", str(again / "consumequeue"))
            assert run(["check", again, "--repair"]).returncode == 0
            whole(tmp_path / "again.repaired", config)
            shutil.rmtree(tmp_path / "again.repaired")
            assert run(["recover", again]).returncode == 0
            whole(again, config)
        shutil.rmtree(again)
    assert opened_as_it_was
    assert end <= len(data)
    whole(root, config)


def whole(root: Path, config: StoreConfig) -> None:
    with MessageStore.open(root, config, read_only=True) as store:
        assert store.max_offset("t", 0) == COUNT
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_records_without_a_unit_at_the_end_are_no_loss(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    """A half message that was rolled back is in no queue, and a deleted topic's neither."""
    config = settings(engine)
    with MessageStore.open(tmp_path, config, backend="rocksdb") as store:
        assert store.put_message(Message("t", b"x")).ok
        rolled_back = Message("t", b"x", sys_flag=SysFlag.TRANSACTION_ROLLBACK)
        assert store.put_message(rolled_back).ok
        assert store.put_message(Message("gone", b"x")).ok
        store.delete_topic("gone")
    with MessageStore.open(tmp_path, config, read_only=True) as store:
        assert store.max_offset("t", 0) == 1
        assert not store.report.needed
