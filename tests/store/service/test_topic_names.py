"""Which topics a put may make: none with blanks, which no broker takes; all are read."""

from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.any_topics import any_topics

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
REFUSED = ["new orders", "orders\n", "\torders", " ", "a\0b", "a/b", "", "a\u00a0b", "a\x7f"]
TAKEN = ["orders", "%RETRY%g", "%DLQ%g", "a|b", "A_b-9", "x" * 127, "%LMQ%$brief$new", "é"]


@pytest.mark.parametrize("backend", backend_names())
def test_a_name_that_no_broker_accepts_is_refused(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=backend) as store:
        for topic in REFUSED:
            message = Message(topic, b"x")
            done = [store.put_message(message), store.put_message_future(message).result()]
            done += store.put_messages([message])
            assert {each.status for each in done} == {PutMessageStatus.MESSAGE_ILLEGAL}, topic
        assert store.max_phy_offset() == 0
        for topic in TAKEN:
            assert store.put_message(Message(topic, b"x")).ok, topic


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_that_has_such_topics_is_read_checked_and_rebuilt(
    tmp_path: Path, backend: str
) -> None:
    names = ["new orders", "line\nend"]
    with MessageStore.open(tmp_path / "s", CONFIG, backend=backend) as store, any_topics(store):
        for topic in names:
            assert store.put_message(Message(topic, b"x", 0, {"KEYS": "k"})).ok
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        assert sorted(store.topics()) == sorted(names)
        for topic in names:
            assert [bytes(each.body) for each in store.get_message(topic, 0, 0).messages()] == [
                b"x"
            ]
            assert len(store.query_message(topic, "k")) == 1
            assert not store.put_message(Message(topic, b"y")).ok
            store.rebuild_queues(topic)
            assert store.max_offset(topic, 0) == 1
        assert [each for each in store.check() if each.damage] == []
        store.delete_topics(names)
        assert [*store.topics()] == []
