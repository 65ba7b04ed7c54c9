"""A compaction that RocksDB gives up says so."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from tests.kit.engines import ENGINES, using
from tests.kit.rocksdb_queues import RocksDBQueues, put


@pytest.fixture(params=ENGINES)
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RocksDBQueues]:
    with using(request.param):
        yield RocksDBQueues(tmp_path)


def _fill(queues: RocksDBQueues) -> None:
    store = queues.open()
    for first in (0, 5000):
        put(store, "t", 0, range(first, first + 5000), 100 * first)
        store.flush()
    store.close()


def test_a_whole_compaction_has_no_fault(queues: RocksDBQueues) -> None:
    _fill(queues)
    store = queues.open()
    run = store.compact()
    assert run.wait(60)
    assert run.fault is None
    store.close()


def test_damage_that_a_compaction_meets_is_its_fault(queues: RocksDBQueues) -> None:
    """RocksDB's interface returns nothing: the work was given up, and the run looked fine."""
    _fill(queues)
    for path in (queues.root / "consumequeue").glob("*.sst"):
        with path.open("r+b") as file:
            file.seek(20)  # in the first block of units
            file.write(b"\xa5" * 64)
    store = queues.open()
    run = store.compact()
    assert run.wait(60)
    assert isinstance(run.fault, StoreError)
    with suppress(StoreError):  # it may not flush any more
        store.close()
    again = queues.open()  # and yet nothing is held any more
    with suppress(StoreError):
        again.close()
