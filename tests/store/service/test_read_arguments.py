"""Arguments of reads of another type are named in a sentence; what is read shows what it is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=65536)
COUNT = 3


@pytest.fixture(params=backend_names())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG, backend=request.param) as opened:
        for number in range(COUNT):
            assert opened.put_message(Message("t", b"x" * number, 0, {"KEYS": "k"})).ok
        yield opened


# ``test_odd_arguments`` tries each argument of each method.
WRONG: list[tuple[Callable[..., object], str]] = [
    (lambda store: store.get_message("t", "0", 0), "queue_id is '0', str: not an integer"),
    (lambda store: store.get_message("t", 0, 1.5), "offset is 1.5, float: not an integer"),
    (lambda store: store.max_offset(None, 0), "topic is None, NoneType: not a string"),
    (lambda store: store.query_message("t", "k", float("nan")), "max_num is nan, float"),
    (lambda store: store.put_messages(5), "messages must be an iterable of messages, not 5"),
]


@pytest.mark.parametrize(("call", "said"), WRONG, ids=[said for _, said in WRONG])
def test_an_argument_of_another_type_is_named(
    store: MessageStore, call: Callable[..., object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(store)


def test_numbers_of_numpy_are_whole_numbers(store: MessageStore) -> None:
    zero, one, seven = (np.int64(number) for number in (0, 1, 7))
    requested: Any = store
    found = requested.get_message("t", zero, one, one)
    assert (found.status, found.queue_offsets) == (GetMessageStatus.FOUND, [1])
    assert requested.get_message("t", seven, zero).status is not GetMessageStatus.FOUND
    assert requested.max_offset("t", seven) == 0


def test_a_message_shows_where_it_lies_and_what_it_is(store: MessageStore) -> None:
    found = store.get_message("t", 0, 2)
    (message,) = found.messages()
    expected = (
        f"StoredMessage(topic='t', queue_id=0, queue_offset=2, phy_offset={message.phy_offset},"
        f" size={message.size}, store_timestamp={message.store_timestamp}, body=<2 bytes stored>,"
        " properties={'KEYS': 'k'})"
    )
    assert repr(message) == expected
    assert "records=<1 views>, queue_offsets=[2]" in repr(found)


def test_a_message_whose_topic_is_no_text_shows_that(store: MessageStore) -> None:
    (message,) = store.get_message("t", 0, 1).messages()[:1]
    record = bytearray(message.record)
    record[record.index(b"\1t", 80) + 1] = 0xFF  # behind the body, its length before it
    assert "topic=<the topic is not UTF-8>, queue_id=0" in repr(StoredMessage(record))
