"""Keys and values of the two column families, each layout defined once.

``default`` contains the units, ``offset`` the first and last unit of every queue and the checkpoint
entry. Every key begins with the topic's length, so keys sort by topic length, topic, queue id and
queue offset; big-endian numbers sort correctly only because they are never negative.

Source: RocketMQ ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from struct import error as struct_error
from typing import Annotated, NamedTuple

from cqstore.store.errors import CorruptionError, IllegalMessageError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.layout import Layout, Wire
from cqstore.store.record.message import CHECKPOINT_TOPIC

_heads = BoundedCache[str, bytes](32 << 20)
CTRL_1 = 1
CTRL_2 = b"\x02"
"""One above the separator: ends the range of everything after a separator."""
MAX_TOPIC_BYTES = 281
"""RocketMQ builds keys in a 300-byte buffer; a longer topic would block its dispatch forever."""
KIND_MAX = b"max"
KIND_MIN = b"min"


class KeyHead(NamedTuple):
    """Head of every key; the topic's UTF-8 follows."""

    topic_bytes: Annotated[int, Wire("i", "length of the topic's UTF-8, bytes")]
    ctrl: Annotated[int, Wire("b", "0x01")]


class QueueTail(NamedTuple):
    """Part of a unit's key after the topic; the queue offset follows."""

    ctrl_queue: Annotated[int, Wire("b", "0x01")]
    queue_id: Annotated[int, Wire("i", "queue id")]
    ctrl_offset: Annotated[int, Wire("b", "0x01")]


class UnitPlace(NamedTuple):
    """End of a unit's key."""

    queue_offset: Annotated[int, Wire("q", "units from the start of the queue")]


class OffsetTail(NamedTuple):
    """End of a key of the ``offset`` family, after the topic."""

    ctrl_kind: Annotated[int, Wire("b", "0x01")]
    kind: Annotated[bytes, Wire("3s", "ASCII `max` or `min`")]
    ctrl_queue: Annotated[int, Wire("b", "0x01")]
    queue_id: Annotated[int, Wire("i", "queue id")]


class OffsetEntry(NamedTuple):
    """Value of a ``max`` (last unit) or ``min`` (first unit) entry, both inclusive."""

    phy_offset: Annotated[int, Wire("q", "start of the unit's record; may be a placeholder")]
    queue_offset: Annotated[int, Wire("q", "queue offset of the unit; -1 in `max`: no unit")]


class CheckpointEntry(NamedTuple):
    """Value of the checkpoint entry, the only one of eight bytes in its family."""

    phy_offset: Annotated[int, Wire("q", "end of the last dispatched record, bytes")]


KEY_HEAD = Layout(KeyHead)
QUEUE_TAIL = Layout(QueueTail)
UNIT_PLACE = Layout(UnitPlace)
OFFSET_TAIL = Layout(OffsetTail)
LONGEST_PREFIX = KEY_HEAD.size + MAX_TOPIC_BYTES + QUEUE_TAIL.size
"""Maximum length of the ``queue_prefix`` of a queue, in bytes."""
OFFSET_ENTRY = Layout(OffsetEntry)
CHECKPOINT_ENTRY = Layout(CheckpointEntry)


class OffsetKey(NamedTuple):
    """A parsed key of the ``offset`` family."""

    topic: str
    kind: bytes
    queue_id: int

    @property
    def queue(self) -> QueueKey:
        """Return the queue the entry belongs to."""
        return QueueKey(self.topic, self.queue_id)

    @property
    def topic_bytes(self) -> int:
        """Return the length of the topic's UTF-8."""
        return len(self.topic.encode())


def topic_head(topic: str) -> bytes:
    """Return the head of all keys of ``topic``, including the separator after the topic.

    Raises:
        IllegalMessageError: the name is not valid UTF-8.
    """
    return _heads.get(topic) or _learn_head(topic)


def _learn_head(topic: str) -> bytes:
    head = _made_head(topic)
    return _heads.learn(topic, head, 2 * (len(head) - KEY_HEAD.size))


def _made_head(topic: str) -> bytes:
    try:
        name = topic.encode()
    except UnicodeEncodeError as exc:
        raise IllegalMessageError(f"invalid topic name {topic!r}: not valid UTF-8") from exc
    return _PACK_HEAD(len(name), CTRL_1) + name


def check_topic(topic: str) -> None:
    """Refuse a topic that keys cannot contain.

    Raises:
        IllegalMessageError: the topic is reserved, too long, or not valid UTF-8.
    """
    size = len(topic_head(topic)) - KEY_HEAD.size
    if size > MAX_TOPIC_BYTES:
        raise IllegalMessageError(
            f"topic name {topic[:40]!r}... is too long: {size} bytes, RocksDB queues support at"
            f" most {MAX_TOPIC_BYTES}"
        )
    if topic == CHECKPOINT_TOPIC:
        raise IllegalMessageError(f"topic name {topic!r} is reserved for the checkpoint entry")


def queue_prefix(topic: str, queue_id: int) -> bytes:
    """Return the key of a unit without its last eight bytes, the queue offset.

    Raises:
        IllegalMessageError: the topic is not valid UTF-8, or the id needs more than four bytes.
    """
    return topic_head(topic) + _queue_tail(queue_id)


def passing_prefix(topic: str, queue_id: int) -> bytes:
    """Return ``queue_prefix`` without caching the topic, for loops over a million topics."""
    return (_heads.get(topic) or _made_head(topic)) + _queue_tail(queue_id)


def unit_key(prefix: bytes, queue_offset: int) -> bytes:
    """Return the key of one unit of the queue with ``prefix``; the offset is not negative."""
    return prefix + _PLACE(queue_offset)


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all units of the queue with ``prefix``."""
    return prefix[:-1] + CTRL_2


def max_key(prefix: bytes) -> bytes:
    """Return the key of the ``max`` entry of the queue whose units begin with ``prefix``."""
    return _offset_key(prefix, _MAX)


def max_keys(prefixes: Iterable[bytes]) -> list[bytes]:
    """Return ``max_key`` of each; inlined, because a rebuild needs 100,000 per batch."""
    return [prefix[:-_TAIL] + _MAX + prefix[-5:-1] for prefix in prefixes]


def entry_prefix(key: bytes) -> bytes:
    """Return the prefix of the units of the queue whose ``max`` or ``min`` entry has ``key``."""
    return key[: -OFFSET_TAIL.size] + _CTRL + key[-4:] + _CTRL


def min_key(prefix: bytes) -> bytes:
    """Return the key of the ``min`` entry of the queue whose units begin with ``prefix``."""
    return _offset_key(prefix, _MIN)


def topic_range(topic: str) -> tuple[bytes, bytes]:
    """Return the range of the keys of exactly ``topic``, in either family."""
    head = topic_head(topic)
    return head + _CTRL, head + CTRL_2


def topics_range(prefix: str, topic_bytes: int) -> tuple[bytes, bytes]:
    """Return the range, in either family, of the topics of one length that begin with ``prefix``.

    ``prefix`` must not be empty. (UTF-8 contains no byte 0xff.)
    """
    start = KEY_HEAD.pack(KeyHead(topic_bytes, CTRL_1)) + prefix.encode()
    return start, start[:-1] + bytes([start[-1] + 1])


def max_entries_range(topic: str) -> tuple[bytes, bytes]:
    """Return the range of the ``max`` entries of ``topic``, in order of queue ids."""
    start = topic_head(topic) + _CTRL + KIND_MAX
    return start + _CTRL, start + CTRL_2


def parse_unit_key(key: bytes) -> tuple[QueueKey, int]:
    """Return queue and queue offset of a key of the ``default`` family.

    Raises:
        CorruptionError: the key is invalid.
    """
    topic = _topic_of(key, QUEUE_TAIL.size + UNIT_PLACE.size)
    tail = QUEUE_TAIL.unpack_from(key, len(key) - QUEUE_TAIL.size - UNIT_PLACE.size)
    place = UNIT_PLACE.unpack_from(key, len(key) - UNIT_PLACE.size)
    if (tail.ctrl_queue, tail.ctrl_offset) != (CTRL_1, CTRL_1):
        raise CorruptionError(
            f"unit key {key.hex()} has invalid separators", expected="01 and 01",
            got=f"{tail.ctrl_queue & 0xff:02x} and {tail.ctrl_offset & 0xff:02x}",
        )  # fmt: skip
    return QueueKey(topic, tail.queue_id), place.queue_offset


def parse_offset_key(key: bytes) -> OffsetKey:
    """Return the parsed key of an entry of the ``offset`` family.

    Raises:
        CorruptionError: the key is invalid.
    """
    topic = _topic_of(key, OFFSET_TAIL.size)
    ctrl_kind, kind, ctrl_queue, queue_id = _OFFSET_TAIL(key, len(key) - OFFSET_TAIL.size)
    if ctrl_kind != CTRL_1 or ctrl_queue != CTRL_1 or kind not in _KINDS:
        raise CorruptionError(
            f"offset key {key.hex()} is neither a max nor a min entry",
            expected=f"{_MAX.hex()} or {_MIN.hex()}", got=key[-OFFSET_TAIL.size : -4].hex(),
        )  # fmt: skip
    return OffsetKey(topic, kind, queue_id)


def parse_max_entries(
    entries: Iterable[tuple[bytes, bytes]],
) -> Iterator[tuple[QueueKey, OffsetEntry]]:
    """Yield queue and value of ``max`` entries; faster than ``parse_offset_key`` for each.

    Raises:
        CorruptionError: a key is invalid.
    """
    head, topic = b"", ""  # of the last key: the next one usually has the same topic
    for key, value in entries:
        if key[:-4] != head:
            found = parse_offset_key(key)
            topic, head = found.topic, key[:-4]
        queue_id = int.from_bytes(key[-4:], signed=True)
        # As the classes would make them, without a call of Python.
        yield _new(QueueKey, (topic, queue_id)), _new(OffsetEntry, _ENTRY(value))


def readable_key(key: bytes) -> str | None:
    """Return a key of either family as text; an invalid key as its bytes, ``None`` if empty.

    ``topic/0/7`` is unit 7 of queue 0, ``topic/0 max`` is that queue's ``max`` entry.
    """
    if not key:
        return None
    if key == CHECKPOINT_KEY:
        return "checkpoint"
    with suppress(CorruptionError):
        queue, queue_offset = parse_unit_key(key)
        return f"{queue.topic}/{queue.queue_id}/{queue_offset}"
    with suppress(CorruptionError):
        entry = parse_offset_key(key)
        return f"{entry.topic}/{entry.queue_id} {entry.kind.decode()}"
    return "".join(chr(each) if 32 < each < 127 else f"\\x{each:02x}" for each in key)  # noqa: PLR2004


def _topic_of(key: bytes, tail_bytes: int) -> str:
    """Return the topic of a key that ends in ``tail_bytes`` more bytes.

    Raises:
        CorruptionError: the key is invalid.
    """
    if len(key) < KEY_HEAD.size + tail_bytes:
        least = KEY_HEAD.size + tail_bytes
        raise CorruptionError(
            f"key {key.hex()} is too short", expected=f"at least {least} bytes",
            got=f"{len(key)} bytes",
        )  # fmt: skip
    topic_bytes, ctrl = _KEY_HEAD(key)
    if ctrl != CTRL_1 or KEY_HEAD.size + topic_bytes + tail_bytes != len(key):
        length = KEY_HEAD.size + topic_bytes + tail_bytes
        raise CorruptionError(
            f"the length of key {key.hex()} does not match its topic length",
            expected=f"{length} bytes", got=f"{len(key)} bytes",
        )  # fmt: skip
    try:
        return key[KEY_HEAD.size : KEY_HEAD.size + topic_bytes].decode()
    except UnicodeDecodeError as exc:
        raise CorruptionError(
            f"the topic of key {key.hex()} is not UTF-8",
            expected="UTF-8",
            got=exc.object[exc.start : exc.end].hex(),
        ) from exc


@lru_cache(maxsize=4_096)
def _queue_tail(queue_id: int) -> bytes:
    try:
        return QUEUE_TAIL.pack(QueueTail(CTRL_1, queue_id, CTRL_1))
    except struct_error as exc:
        raise IllegalMessageError(f"queue id {queue_id} does not fit in four bytes") from exc


def _offset_key(prefix: bytes, middle: bytes) -> bytes:
    return prefix[:-_TAIL] + middle + prefix[_QUEUE_ID]


_PLACE = UNIT_PLACE.struct.pack
_ENTRY = OFFSET_ENTRY.struct.unpack_from
_new = tuple.__new__
_PACK_HEAD = KEY_HEAD.struct.pack
_KEY_HEAD = KEY_HEAD.struct.unpack_from  # ordinary tuples: a list of a million queues parses each
_OFFSET_TAIL = OFFSET_TAIL.struct.unpack_from
_KINDS = {KIND_MAX, KIND_MIN}
_CTRL = bytes([CTRL_1])
_TAIL = QUEUE_TAIL.size
_QUEUE_ID = slice(-5, -1)
_MAX = _CTRL + KIND_MAX + _CTRL
_MIN = _CTRL + KIND_MIN + _CTRL
CHECKPOINT_KEY = max_key(queue_prefix(CHECKPOINT_TOPIC, 0))
