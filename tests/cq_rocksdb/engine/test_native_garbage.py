"""Snapshots that were not released, and those that are in use."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.cq_rocksdb.engine import native_engine
from cqstore.cq_rocksdb.engine._snapshot import Snapshot
from cqstore.cq_rocksdb.engine.choice import engine_works
from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.cq_rocksdb.engine.rocks_engine import Family
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, put

pytestmark = pytest.mark.skipif(
    not engine_works(RocksDBEngine.NATIVE), reason="there is no library"
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[native_engine.NativeEngine]:
    store = RocksDBQueues(tmp_path).open(rocksdb_engine="native")
    put(store, "T", 0, range(3), 0)
    opened = engine_of(store)
    assert isinstance(opened, native_engine.NativeEngine)
    yield opened
    store.close()


def test_the_collector_gives_a_snapshot_back_to_its_database(
    engine: native_engine.NativeEngine,
) -> None:
    def held() -> str | None:
        return engine.property_value(Family.DEFAULT, "rocksdb.num-snapshots")

    owner: list[Any] = [Snapshot(engine._database)]
    owner.append(owner)  # so that the collector alone can free it
    assert held() == "1"
    del owner
    gc.collect()
    assert held() == "0"


def test_a_snapshot_that_was_released_reads_nothing(engine: native_engine.NativeEngine) -> None:
    with engine.snapshot() as snapshot:
        pass
    with pytest.raises(RocksDBError, match="released"):
        snapshot.get(Family.DEFAULT, b"key")
