"""Keys and values of the RocksDB queues, against bytes worked out by hand from the format."""

import pytest

from cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    OFFSET_ENTRY,
    CheckpointEntry,
    OffsetEntry,
    check_topic,
    max_key,
    min_key,
    parse_offset_key,
    parse_unit_key,
    prefix_end,
    queue_prefix,
    topic_range,
    unit_key,
)
from store.errors import CorruptionError, IllegalMessageError
from store.queue.units import QUEUE_UNIT, QueueKey, QueueUnit

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
    for topic in ("T", "主题", "%LMQ%a/b", "x" * 281):
        prefix = queue_prefix(topic, 65536)
        assert parse_unit_key(unit_key(prefix, 1 << 40)) == (QueueKey(topic, 65536), 1 << 40)
        assert parse_offset_key(min_key(prefix)) == (topic, b"min", 65536)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "00000009",
        UNIT_KEY[:-2],
        UNIT_KEY + "00",
        "00" + UNIT_KEY,
        UNIT_KEY.replace("0100000003", "0000000003"),
        UNIT_KEY.replace("54657374", "ff657374"),
        "7fffffff" + UNIT_KEY[8:],
    ],
)
def test_a_key_that_is_no_units_is_a_corruption_error(key: str) -> None:
    with pytest.raises(CorruptionError):
        parse_unit_key(bytes.fromhex(key))


def test_an_offset_key_of_another_kind_is_a_corruption_error() -> None:
    with pytest.raises(CorruptionError, match="neither a max nor a min"):
        parse_offset_key(bytes.fromhex(MAX_KEY).replace(b"max", b"mid"))


@pytest.mark.parametrize(
    ("topic", "why"),
    [("x" * 282, "282 bytes"), ("主" * 94, "282 bytes"), ("CHECKPOINT_TOPIC", "reserved")],
)
def test_a_topic_that_no_key_may_hold_is_refused(topic: str, why: str) -> None:
    with pytest.raises(IllegalMessageError, match=why):
        check_topic(topic)


def test_names_without_a_key_form_are_refused() -> None:
    with pytest.raises(IllegalMessageError, match="no UTF-8 form"):
        check_topic("\ud800")
    with pytest.raises(IllegalMessageError, match="four bytes"):
        queue_prefix("T", 1 << 31)
