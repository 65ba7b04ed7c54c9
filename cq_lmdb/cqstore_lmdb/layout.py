"""Keys and values of the database.

``queues`` has an entry per queue: its ends. ``units`` has the units, in blocks of ``BLOCK_UNITS``:
block *n* of a queue contains its offsets from ``n * BLOCK_UNITS`` on. The unnamed database has the
format and the checkpoint. Keys sort by topic, queue id and block.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Annotated, NamedTuple

from cqstore.store.errors import CorruptionError, IllegalMessageError
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.layout import Layout, Wire

FORMAT = b"cqstore-lmdb 1"
FORMAT_KEY, CHECKPOINT_KEY = b"format", b"checkpoint"
QUEUES, UNITS = b"queues", b"units"
"""Names of the databases."""
BLOCK_UNITS = 32
"""Four blocks fit in a page of 4 KiB, and a pull of 32 messages reads two."""
UNIT_BYTES = QUEUE_UNIT.size
MAX_KEY_BYTES = 511
"""Limit of LMDB."""
_TAIL = Struct(">ci")
_NUMBER = Struct(">Q")
MAX_TOPIC_BYTES = MAX_KEY_BYTES - _TAIL.size - _NUMBER.size


class QueueEnds(NamedTuple):
    """The entry of a queue."""

    first: Annotated[int, Wire("q", "queue offset of the first stored unit")]
    next: Annotated[int, Wire("q", "queue offset after the last unit")]
    last_phy: Annotated[int, Wire("q", "phy offset of the last unit; -1: there was no unit")]


class Checkpoint(NamedTuple):
    """The entry up to which the log is dispatched."""

    phy_offset: Annotated[int, Wire("q", "end of the last dispatched record, bytes")]


QUEUE_ENDS = Layout(QueueEnds)
CHECKPOINT = Layout(Checkpoint)
NO_QUEUE = QueueEnds(0, 0, -1)


def queue_key(topic: str, queue_id: int) -> bytes:
    """Return the key of a queue's entry, with which the keys of its blocks begin.

    Raises:
        IllegalMessageError: the topic or the id does not fit in a key.
    """
    try:
        return topic_head(topic) + _TAIL.pack(b"\0", queue_id)
    except struct_error as exc:
        raise IllegalMessageError(f"queue id {queue_id} does not fit in four bytes") from exc


def topic_head(topic: str) -> bytes:
    """Return the bytes with which the keys of ``topic`` begin; a zero byte follows.

    Raises:
        IllegalMessageError: the topic does not fit in a key.
    """
    try:
        name = topic.encode()
    except UnicodeEncodeError as exc:
        raise IllegalMessageError(f"invalid topic name {topic!r}: not valid UTF-8") from exc
    if b"\0" in name:
        raise IllegalMessageError(f"invalid topic name {topic!r}: LMDB queues do not support NUL")
    if len(name) > MAX_TOPIC_BYTES:
        raise IllegalMessageError(
            f"topic name {topic[:40]!r}... is too long: {len(name)} bytes, LMDB queues support at"
            f" most {MAX_TOPIC_BYTES}"
        )
    return name


def topic_range(topic: str) -> tuple[bytes, bytes]:
    """Return the range of the keys of exactly ``topic``."""
    head = topic_head(topic)
    return head + b"\0", head + b"\1"


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Return the range of the keys of all topics that begin with ``prefix``."""
    head = topic_head(prefix)
    return head, head + b"\xff"  # UTF-8 contains no byte 0xff


def parse_queue_key(key: bytes) -> QueueKey:
    """Return the queue of an entry.

    Raises:
        CorruptionError: the key is invalid.
    """
    name, zero, number = key.partition(b"\0")
    if not zero or len(number) != _TAIL.size - 1:
        raise CorruptionError(
            f"key {key.hex()} is invalid", expected="a topic, a zero byte and four bytes",
            got=f"{len(key)} bytes",
        )  # fmt: skip
    try:
        return QueueKey(name.decode(), _TAIL.unpack_from(key, len(name))[1])
    except UnicodeDecodeError as exc:
        raise CorruptionError(
            f"the topic of key {key.hex()} is not UTF-8", expected="UTF-8", got=name.hex()
        ) from exc


def block_key(queue: bytes, number: int) -> bytes:
    """Return the key of block ``number`` of the queue with key ``queue``."""
    return queue + _NUMBER.pack(number)


def numbers(ends: QueueEnds) -> range:
    """Return the numbers of the blocks of a queue."""
    if ends.first == ends.next:
        return range(0)
    return range(ends.first // BLOCK_UNITS, (ends.next - 1) // BLOCK_UNITS + 1)


def block_number(key: bytes) -> int:
    """Return the number of the block with ``key``."""
    number: int = _NUMBER.unpack_from(key, len(key) - _NUMBER.size)[0]
    return number


def block_value(first: int, units: bytes) -> bytes:
    """Return the value of a block whose first unit has offset ``first``.

    One byte with the place of that unit in the block, then the units.
    """
    return bytes([first % BLOCK_UNITS]) + units


def block_units(value: bytes, number: int) -> tuple[int, bytes]:
    """Return the offset of the first unit of a block, and its units.

    Raises:
        CorruptionError: the value is invalid.
    """
    place = value[0] if value else BLOCK_UNITS
    count, rest = divmod(len(value) - 1, UNIT_BYTES)
    if rest or not 0 < count <= BLOCK_UNITS - place:
        raise CorruptionError(
            f"block {number} is invalid", got=f"{len(value)} bytes from place {place} on",
            expected=f"a byte and at most {BLOCK_UNITS} units of {UNIT_BYTES} bytes",
        )  # fmt: skip
    return number * BLOCK_UNITS + place, value[1:]


def blocks_of(first: int, units: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and values of the blocks of consecutive units from offset ``first`` on."""
    end = first + len(units) // UNIT_BYTES
    at = first
    while at < end:
        stop = min(end, at - at % BLOCK_UNITS + BLOCK_UNITS)
        rows = units[(at - first) * UNIT_BYTES : (stop - first) * UNIT_BYTES]
        yield at // BLOCK_UNITS, block_value(at, rows)
        at = stop
