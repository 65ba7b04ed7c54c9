"""What a program shows, copies and sends elsewhere: reprs of what is open, pickles of messages."""

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cqstore
from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.log_message import TailMessage
from cqstore.embedded.open_log import open_log
from cqstore.store.errors import StoreFailedError, StoreIOError, StoreStateError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.topic_reader import TopicMessage, read_topic
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
BODIES = [b"x", b"", bytes(5000)]


def pickled(given: Any) -> Any:
    return pickle.loads(pickle.dumps(given))


COPIES = [pickled, copy.copy, copy.deepcopy]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(tmp_path / "s", CONFIG, queues=1) as opened:
        for number, body in enumerate(BODIES):
            opened.put("t", body, key=f"k{number}", properties={"a": "ö"})
        yield opened


@pytest.mark.parametrize("copied", COPIES)
def test_a_stored_message_outlives_its_store_as_a_copy(
    tmp_path: Path, copied: Callable[[Any], Any]
) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        for number, body in enumerate(BODIES):
            store.put_message(Message("t", body, 0, {"KEYS": f"k{number}"}))
        found = store.get_message("t", 0, 0)
        records = [bytes(record) for record in found.records]
        messages = [copied(message) for message in found.messages()]
        results = copied(store.get_message("t", 0, 0))
        rows: list[TopicMessage] = [copied(row) for row in read_topic(store, "t")]
        assert results == found
    assert [bytes(each.record) for each in messages] == records
    assert [(each.queue_offset, bytes(each.body)) for each in messages] == [*enumerate(BODIES)]
    assert [each.properties["KEYS"] for each in messages] == ["k0", "k1", "k2"]
    assert [bytes(record) for record in results.records] == records
    assert [bytes(each.message.record) for each in rows] == records


def first_of(log: EmbeddedLog, group: str) -> TailMessage:
    async def read() -> TailMessage:
        async with log.tail("t", group=group, auto_commit=False) as tail:
            return await anext(tail)

    return asyncio.run(read())


def test_a_message_of_a_tail_is_copied_and_pickled(log: EmbeddedLog) -> None:
    message = first_of(log, "g")
    for each in (copied(message) for copied in COPIES):
        assert (each.queue_offset, each.body) == (message.queue_offset, message.body)
        assert (each.properties, each.stored_at) == (message.properties, message.stored_at)
        assert (type(each), each.group, each.key) == (TailMessage, "g", "k0")
    with pytest.raises(
        StoreStateError, match="cannot commit message 0 of queue 0 of topic 't': it was pickled"
    ):
        pickled(message).commit()
    assert log.committed("g", "t") == {}
    deep = copy.deepcopy(message)
    deep.properties["a"] = "changed"
    assert message.properties["a"] == "ö"
    deep.commit()
    assert log.committed("g", "t") == {0: 1}
    plain = next(log.read("t"))
    assert [pickled(plain).body, copy.deepcopy(plain).key] == [plain.body, "k0"]


def test_what_is_open_shows_its_folder_its_queues_and_its_state(tmp_path: Path) -> None:
    root = tmp_path / "s"
    both = CONFIG.model_copy(update={"rocksdb_cq_double_write_enable": True})
    with MessageStore.open(root, both) as store:
        assert repr(store) == f"<MessageStore {str(root)!r}, file+rocksdb, open>"
        assert repr(store.metrics) == f"<StoreMetrics of {str(root)!r}, open>"
        components_of(store).state.set_disk_full("no room")
        assert repr(store).endswith(", open, puts refused>")
        components_of(store).state.set_disk_full("")
    assert repr(store) == f"<MessageStore {str(root)!r}, file+rocksdb, closed>"
    with MessageStore.open(root, both, read_only=True, backend="rocksdb") as reader:
        assert repr(reader) == f"<MessageStore {str(root)!r}, rocksdb, read-only>"
    failing = MessageStore.open(root, both)
    components_of(failing).state.fail(StoreIOError("the disk refused"))
    assert repr(failing).endswith(", failed>")
    with pytest.raises(StoreFailedError):
        failing.put_message(Message("t", b"x"))
    failing.close()


def test_a_log_its_tails_and_a_scan_say_what_they_are(tmp_path: Path, log: EmbeddedLog) -> None:
    root = tmp_path / "s"
    assert repr(log) == f"<EmbeddedLog {str(root)!r}, file, open>"
    tail = log.tail("t", group="g")
    assert repr(tail) == "<Tail of topic 't', group 'g', queues [], open>"
    tail.close()
    assert repr(tail) == "<Tail of topic 't', group 'g', queues [], closed>"
    with open_log(root, CONFIG, read_only=True) as reader:
        assert repr(reader) == f"<EmbeddedLog {str(root)!r}, file, read-only>"
        follower = reader.tail("t")
        assert repr(follower) == "<ReadOnlyTail of topic 't', open>"
        follower.close()
    shown = repr(cqstore.scan(root, "t", columns=["topic", "body"], config=CONFIG))
    assert shown == f"<Scan of the messages of {str(root)!r}, columns topic, body>"
