"""BatchCQ topics: a broker and we go on from each other; and why none is served from RocksDB."""

from pathlib import Path

import pytest

from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.interop.brokers import Broker, Brokers
from tests.interop.test_moved_tables import MASTER, config
from tests.interop.walk import SMALL, registered

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
BATCH_FILE = {"mapperFileSizeBatchConsumeQueue": 46 * 16}


def put(store: MessageStore, sizes: list[int], queue_id: int = 0) -> list[int]:
    """Put client batches as a producer sends them; return the offsets."""
    offsets = []
    for size in sizes:
        body = encode_client_batch([Message("b", b"%d" % at) for at in range(size)])
        (done,) = store.put_client_batch(Message("b", body, queue_id, {"UNIQ_KEY": "u"}))
        assert done.ok, done.reason
        offsets.append(done.queue_offset)
    return offsets


def pulled(broker: Broker, offset: int, queue_id: int = 0) -> tuple[list[int], list[str], int]:
    """Return offsets and bodies of the messages from ``offset`` on, and the next offset."""
    found = broker.do("pull", "b", queue_id, offset)
    assert found["status"] == "FOUND"
    return found["offsets"], found["bodies"], found["next"]


def bodies(sizes: list[int]) -> list[str]:
    return [str(at) for size in sizes for at in range(size)]


def test_a_broker_and_we_go_on_from_each_other(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    settings = {**MASTER, **SMALL, **BATCH_FILE, **names}
    ours = config(**BATCH_FILE)
    with brokers.running(tmp_path, storeType="default", **settings) as broker:
        registered(broker, "b", "batchTopic")
        assert broker.do("batches", "b", 0, 3, 1)["offsets"] == [0, 3]
    with MessageStore.open(tmp_path, ours) as store:
        assert put(store, [2, 5, 1]) == [4, 6, 11]
        assert put(store, [4, 2], 3) == [0, 4]
        assert not store.put_message(Message("b", b"plain")).ok
    with brokers.running(tmp_path, storeType="default", **settings) as broker:
        assert pulled(broker, 0) == ([*range(12)], bodies([3, 1, 2, 5, 1]), 12)
        assert pulled(broker, 5) == ([*range(4, 12)], bodies([2, 5, 1]), 12)
        assert pulled(broker, 0, 3) == ([*range(6)], bodies([4, 2]), 6)
        registered(broker, "b", "end")
        assert broker.do("batches", "b", 0, 2)["offsets"] == [12]
        assert broker.do("batches", "b", 3, 1)["offsets"] == [6]
    with MessageStore.open(tmp_path, ours) as store:
        assert (store.max_offset("b", 0), store.max_offset("b", 3)) == (14, 7)
        assert put(store, [3]) == [14]
        assert [found for found in store.check() if found.damage] == []


def test_a_broker_recovers_what_was_put_before_a_crash(
    tmp_path: Path, brokers: Brokers, names: dict[str, object]
) -> None:
    """The queues are lost, too: it dispatches the records of the log again."""
    settings = {**MASTER, **SMALL, **BATCH_FILE, **names}
    with brokers.running(tmp_path, storeType="default", **settings) as broker:
        broker.do("batchTopic", "b")
    with MessageStore.open(tmp_path, config(**BATCH_FILE)) as store:
        assert put(store, [3, 1, 2, 5, 1]) == [0, 3, 4, 6, 11]
    queue = tmp_path / "batchconsumequeue" / "b" / "0"
    files = {path.name: path.read_bytes() for path in queue.iterdir()}
    for path in queue.iterdir():
        path.unlink()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    with brokers.running(tmp_path, storeType="default", **settings) as broker:
        assert pulled(broker, 0) == ([*range(12)], bodies([3, 1, 2, 5, 1]), 12)
    assert {path.name: path.read_bytes() for path in queue.iterdir() if any(path.read_bytes())} == (
        files
    )


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
