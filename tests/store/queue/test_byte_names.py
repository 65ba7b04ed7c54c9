"""Folders whose names are bytes and no UTF-8: the native engine takes them, rocksdict's do not."""

import os
from pathlib import Path

import pytest

from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES
from tests.kit.operating import SMALL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / os.fsdecode(b"caf\xe9") / "store"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_is_written_and_read_there_or_nothing_is_made(
    root: Path, engine: RocksDBEngine
) -> None:
    config = SMALL.model_copy(update={"rocksdb_engine": engine})
    if engine is RocksDBEngine.ROCKSDICT:
        with pytest.raises(RefusedStoreError, match="a folder whose name is not UTF-8"):
            MessageStore.open(root, config, backend="rocksdb")
        assert not (root / "consumequeue").exists()
        return
    for read_only in (False, True):
        with MessageStore.open(root, config, backend="rocksdb", read_only=read_only) as store:
            if not read_only:
                assert store.put_messages([Message("t", b"x")] * 3)
                store.flush()
            assert store.max_offset("t", 0) == 3


def test_metadata_in_rocksdb_is_not_written_there(root: Path) -> None:
    with pytest.raises(RefusedStoreError, match="a folder whose name is not UTF-8"):
        write_form(BrokerMetadata(Form.JSON, root), Form.V1, root)
    assert not list(root.rglob("CURRENT"))
