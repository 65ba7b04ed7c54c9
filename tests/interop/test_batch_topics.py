"""BatchCQ topics: why a broker serves none of them from RocksDB."""

from pathlib import Path

import pytest

from tests.interop.brokers import Broker, Brokers
from tests.interop.test_moved_tables import MASTER
from tests.interop.walk import SMALL, registered

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]


def pulled(broker: Broker, offset: int, queue_id: int = 0) -> tuple[list[int], list[str], int]:
    """Return offsets and bodies of the messages from ``offset`` on, and the next offset."""
    found = broker.do("pull", "b", queue_id, offset)
    assert found["status"] == "FOUND"
    return found["offsets"], found["bodies"], found["next"]


def bodies(sizes: list[int]) -> list[str]:
    return [str(at) for size in sizes for at in range(size)]


def test_a_broker_with_rocksdb_loses_messages_of_inner_batches(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    """Each batch has one unit, and as many offsets as messages: there are holes in between."""
    settings = {**MASTER, **SMALL, **names, "storeType": "defaultRocksDB"}
    with brokers.running(tmp_path, **settings) as broker:
        registered(broker, "b", "batchTopic")
        assert broker.do("batches", "b", 0, 3)["offsets"] == [0]
        assert pulled(broker, 0) == ([0, 1, 2], bodies([3]), 1)
        assert broker.do("batches", "b", 0, 2)["offsets"] == [3]
        assert broker.do("pull", "b", 0, 1) == {"status": "NullPointerException"}
        assert broker.do("batches", "b", 1, 3, 2, 2)["offsets"] == [0, 3, 5]
        answer = broker.do("pull", "b", 1, 0)
        assert (answer["status"], answer["next"]) == ("OFFSET_TOO_SMALL", 5), "two are passed over"
    with brokers.running(tmp_path, **settings) as broker:
        registered(broker, "b", "end")
        assert broker.do("batches", "b", 1, 2)["offsets"] == [6], "for the second time"
        assert pulled(broker, 5, 1) == ([5, 6, 6, 7], bodies([2, 2]), 7)


def test_a_broker_with_double_write_does_not_start_with_a_batch_topic(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    settings = {**MASTER, **SMALL, **names, "storeType": "default"}
    with brokers.running(tmp_path, **settings) as broker:
        registered(broker, "b", "batchTopic")
        assert broker.do("batches", "b", 0, 3)["offsets"] == [0]
    double = {"rocksdbCQDoubleWriteEnable": "true"}
    with (
        pytest.raises(AssertionError, match="the broker has ended"),
        brokers.running(tmp_path, **settings, **double),
    ):
        pass
