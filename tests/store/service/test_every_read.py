"""What holds for whatever a store can be asked: it sees what was put, and a closed one refuses."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.store.errors import StoreClosedError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=50,
    max_index_num=1000,
)  # fmt: skip
FIRST_ID = "7F000001" + "0" * 24
READS: dict[str, Callable[[MessageStore], object]] = {
    "get_message": lambda store: store.get_message("t", 0, 0),
    "message_by_offset": lambda store: store.message_by_offset(0),
    "message_by_id": lambda store: store.message_by_id(FIRST_ID),
    "query_message": lambda store: store.query_message("t", "k"),
    "offset_by_time": lambda store: store.offset_by_time("t", 0, 0),
    "min_offset": lambda store: store.min_offset("t", 0),
    "max_offset": lambda store: store.max_offset("t", 0),
    "estimate": lambda store: store.estimate_message_count("t", 0, 0, 9, TagFilter("a")),
    "queue_keys": lambda store: store.queue_keys(),
    "queue_spans": lambda store: store.queue_spans(),
    "topics": lambda store: store.topics(),
    "checker": lambda store: store.checker(),
    "expiring_files": lambda store: store.expiring_files(),
    "unused_topics": lambda store: store.clean_unused_topics(["t"]),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as opened:
        yield opened


@pytest.mark.parametrize("name", READS)
def test_all_that_was_put_is_in_its_queue_first(store: MessageStore, name: str) -> None:
    assert store.put_message(Message("t", b"x", 0, {"KEYS": "k"})).ok
    assert store.metrics.snapshot().dispatch_lag_bytes > 0
    READS[name](store)
    assert store.metrics.snapshot().dispatch_lag_bytes == 0


def test_a_closed_store_answers_nothing(store: MessageStore) -> None:
    assert store.put_message(Message("t", b"x")).ok
    store.close()
    for read in READS.values():
        with pytest.raises(StoreClosedError):
            read(store)


def test_thirty_two_messages_come_where_no_number_is_given(store: MessageStore) -> None:
    """As RocketMQ's clients ask."""
    store.put_messages([Message("t", b"x", 0, {"KEYS": "k"})] * 40)
    assert len(store.get_message("t", 0, 0).messages()) == 32
    assert len(store.query_message("t", "k")) == 32
