"""Status of a pull, and the damaged records that it leaves out; ``results`` has the result."""

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from cqstore.store.errors import CorruptionError
from cqstore.store.record.decoder import StoredMessage

if TYPE_CHECKING:
    from cqstore.store.service._results import GetMessageResult


class GetMessageStatus(Enum):
    """Result of a pull."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class DamagedRecord(NamedTuple):
    """A unit that a pull skipped because its record is damaged."""

    queue_offset: int
    phy_offset: int
    size: int
    """Size of the record according to its unit, in bytes."""
    reason: str
    """Why the record is invalid, in one sentence."""


def decoded(result: "GetMessageResult") -> list[StoredMessage]:
    """Return the messages of a pull; damaged ones are removed from the result."""
    try:
        return [StoredMessage(record) for record in result.records]
    except CorruptionError:
        return _sound(result)


def _sound(result: "GetMessageResult") -> list[StoredMessage]:
    sound: list[StoredMessage] = []
    pairs = [*zip(result.queue_offsets, result.records, strict=True)]
    result.queue_offsets.clear()
    result.records.clear()
    for queue_offset, record in pairs:
        try:
            message = StoredMessage(record)
        except CorruptionError as exc:
            result.leave_out(queue_offset, exc.phy_offset or 0, len(record), exc)
            result.total_bytes -= len(record)
            continue
        result.queue_offsets.append(queue_offset)
        result.records.append(record)
        sound.append(message)
    if not sound:
        result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
    return sound
