"""Keys and values of the RocksDB queues, against bytes worked out by hand from the format."""

import pytest

from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    OFFSET_ENTRY,
    CheckpointEntry,
    OffsetEntry,
    _heads,
    check_topic,
    entry_prefix,
    max_key,
    max_keys,
    min_key,
    parse_max_entries,
    parse_offset_key,
    parse_unit_key,
    prefix_end,
    queue_prefix,
    readable_key,
    topic_head,
    topic_range,
    unit_key,
)
from cqstore.store.errors import CorruptionError, IllegalMessageError
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit

PREFIX = queue_prefix("TopicTest", 3)
UNIT_KEY = "0000000901546f706963546573740100000003010000000000000005"
MAX_KEY = "0000000901546f70696354657374016d61780100000003"
MIN_KEY = "0000000901546f70696354657374016d696e0100000003"


def test_a_unit_has_the_key_and_value_of_the_format() -> None:
    assert unit_key(PREFIX, 5).hex() == UNIT_KEY
    unit = QueueUnit(0x1122334455, 200, 2598919, 1_700_000_000_001)
    value = "0000001122334455000000c8000000000027a8070000018bcfe56801"
    assert QUEUE_UNIT.pack(unit).hex() == value


def test_offset_entries_have_the_keys_and_values_of_the_format() -> None:
    assert max_key(PREFIX).hex() == MAX_KEY
    assert min_key(PREFIX).hex() == MIN_KEY
    value = OFFSET_ENTRY.pack(OffsetEntry(0x1122334455, 5))
    assert value.hex() == "00000011223344550000000000000005"


def test_the_checkpoint_entry_has_the_key_of_the_format_and_eight_bytes() -> None:
    key = "0000001001434845434b504f494e545f544f504943016d61780100000000"
    assert CHECKPOINT_KEY.hex() == key
    assert CHECKPOINT_ENTRY.pack(CheckpointEntry(1)).hex() == "0000000000000001"


def test_the_range_of_a_queue_ends_like_rocketmqs_delete_range() -> None:
    assert prefix_end(PREFIX).hex() == "0000000901546f70696354657374010000000302"
    begin = bytes.fromhex("0000000901546f70696354657374010000000300")
    assert begin < unit_key(PREFIX, 0) < unit_key(PREFIX, (1 << 63) - 1) < prefix_end(PREFIX)


def test_the_range_of_a_topic_holds_all_its_queues_and_no_other_topic() -> None:
    start, end = topic_range("TopicTest")
    inside = [unit_key(queue_prefix("TopicTest", queue), 9) for queue in (0, 255, 0x7FFFFFFF)]
    assert all(start <= key < end for key in (*inside, bytes.fromhex(MAX_KEY)))
    for other in ("TopicTesu", "TopicTess", "TopicTest1", "TopicTes"):
        assert not start <= unit_key(queue_prefix(other, 0), 0) < end


def test_keys_of_any_topic_parse_back() -> None:
    for topic in ("", "T", "主题", "%LMQ%a/b", "x" * 281):
        check_topic(topic)
        prefix = queue_prefix(topic, 65536)
        assert entry_prefix(max_key(prefix)) == entry_prefix(min_key(prefix)) == prefix
        assert max_keys([prefix, PREFIX]) == [max_key(prefix), max_key(PREFIX)]
        assert parse_unit_key(unit_key(prefix, 1 << 40)) == (QueueKey(topic, 65536), 1 << 40)
        assert parse_offset_key(min_key(prefix)) == (topic, b"min", 65536)


def test_a_key_is_readable_and_one_that_is_none_is_its_bytes() -> None:
    """The first two are worked out by hand from the format."""
    assert readable_key(bytes.fromhex(UNIT_KEY)) == "TopicTest/3/5"
    assert readable_key(bytes.fromhex(MAX_KEY)) == "TopicTest/3 max"
    assert readable_key(min_key(queue_prefix("主题", 7))) == "主题/7 min"
    assert readable_key(CHECKPOINT_KEY) == "checkpoint"
    assert readable_key(b"o d\x00\xff~") == "o\\x20d\\x00\\xff~"
    assert readable_key(b"") is None


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "is too short"),
        ("00000009", "is too short"),
        (UNIT_KEY[:-2], "does not match its topic length"),
        (UNIT_KEY + "00", "does not match its topic length"),
        ("00" + UNIT_KEY, "does not match its topic length"),
        (UNIT_KEY.replace("0901", "0902"), "does not match its topic length"),
        (UNIT_KEY.replace("0100000003", "0000000003"), "has invalid separators"),
        (UNIT_KEY.replace("0000000301", "0000000302"), "has invalid separators"),
        (UNIT_KEY.replace("54657374", "ff657374"), "is not UTF-8"),
        ("7fffffff" + UNIT_KEY[8:], "does not match its topic length"),
    ],
)
def test_a_key_that_is_no_units_is_a_corruption_error(key: str, why: str) -> None:
    with pytest.raises(CorruptionError, match=why) as caught:
        parse_unit_key(bytes.fromhex(key))
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("016d6178", "016d6964"), ("016d6178", "026d6178"), ("6d617801", "6d617802")],
)
def test_an_offset_key_of_another_kind_is_a_corruption_error(right: str, wrong: str) -> None:
    key = MAX_KEY.replace(right, wrong)
    with pytest.raises(CorruptionError, match=f"{key} is neither a max nor a min"):
        parse_offset_key(bytes.fromhex(key))


def test_what_is_remembered_of_names_has_a_bound() -> None:
    held = len(_heads)
    for number in range(40):
        topic_head(f"{number}" * 20_000)
    assert len(_heads) == held, "a name as long as these is not remembered"


@pytest.mark.parametrize(
    ("topic", "why"),
    [("x" * 282, "282 bytes"), ("主" * 94, "282 bytes"), ("CHECKPOINT_TOPIC", "reserved")],
)
def test_a_topic_that_no_key_may_hold_is_refused(topic: str, why: str) -> None:
    with pytest.raises(IllegalMessageError, match=why):
        check_topic(topic)


def test_names_without_a_key_form_are_refused() -> None:
    with pytest.raises(IllegalMessageError, match="not valid UTF-8"):
        check_topic("\ud800")
    with pytest.raises(IllegalMessageError, match="four bytes"):
        queue_prefix("T", 1 << 31)


def test_max_entries_are_parsed_in_a_row_as_one_by_one() -> None:
    queues = [("a", 0), ("a", 7), ("a", -1), ("b", -1), ("TopicTest", 3), ("é", 1)]
    entries = [
        (max_key(queue_prefix(*queue)), OFFSET_ENTRY.pack(OffsetEntry(1_000 + at, at)))
        for at, queue in enumerate(queues)
    ]
    assert bytes.fromhex(MAX_KEY) in dict(entries)
    assert list(parse_max_entries(entries)) == [
        (QueueKey(*queue), OffsetEntry(1_000 + at, at)) for at, queue in enumerate(queues)
    ]
    key, value = entries[1]
    for damaged in (key[:-1], key + b"\0", b"\1" + key[1:], key[:-9] + b"\2" + key[-8:]):
        with pytest.raises(CorruptionError):
            list(parse_max_entries([entries[0], (damaged, value)]))
