"""Which entries of the index a put makes, by both feeds, on both backends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.index.index_service import open_index_file
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=10, max_index_num=50)
Feed = Callable[[MessageStore, list[Message]], list[PutMessageResult]]
MESSAGES = [
    Message("t", b"x", 0, {"TAGS": "a||b"}),
    Message("t", b"x", 0, {}),
    Message("u", b"x", 1, {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "q"}),
    Message("t", b"x", 0, {"KEYS": "k1"}),
    Message("t", b"x", 0, {"TAGS": "p"}, sys_flag=int(SysFlag.TRANSACTION_PREPARED)),
    Message("t", b"x", 0, {"TAGS": "r"}, sys_flag=int(SysFlag.TRANSACTION_ROLLBACK)),
    Message("t", b"x", 0, {"TAGS": "last"}),
]
TAGGED = ["t#T#a||b", "u#q", "u#k1", "u#k2", "u#T#a", "t#k1", "t#T#p", "t#T#last"]
PLAIN = ["u#q", "u#k1", "u#k2", "t#k1"]


def one_by_one(store: MessageStore, messages: list[Message]) -> list[PutMessageResult]:
    return [store.put_message(message) for message in messages]


def in_lists(store: MessageStore, messages: list[Message]) -> list[PutMessageResult]:
    """A list of messages with nothing but tags goes a way of its own."""
    parts = (messages[:2], messages[2:6], messages[6:])
    return [result for part in parts for result in store.put_messages(part)]


FEEDS = [one_by_one, MessageStore.put_messages, in_lists]


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize(("index_tags", "expected"), [(True, TAGGED), (False, PLAIN)])
def test_each_record_is_indexed_by_its_keys_then_by_its_tags(
    tmp_path: Path, feed: Feed, *, index_tags: bool, expected: list[str]
) -> None:
    config = CONFIG.model_copy(update={"message_index_tags": index_tags})
    with MessageStore.open(tmp_path, config) as store:
        places = [result.phy_offset for result in feed(store, MESSAGES)]
    (path,) = (tmp_path / "index").iterdir()
    rows = list(open_index_file(path).rows())
    assert [row.key_hash for row in rows] == [abs(java_hash(text)) for text in expected]
    if index_tags:
        assert [row.phy_offset for row in rows] == [places[at] for at in (0, 2, 2, 2, 2, 3, 4, 6)]
