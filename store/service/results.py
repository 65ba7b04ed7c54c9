"""Results of put and get: values, not exceptions, with RocketMQ's names."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import Appended
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Host
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.service import _results


class PutMessageStatus(Enum):
    """Result of a put. The message is stored with ``PUT_OK`` and the ``FLUSH_…`` ones."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    FLUSH_SLAVE_TIMEOUT = auto()
    """Not acknowledged by enough followers in time; it may still be replicated later."""
    IN_SYNC_REPLICAS_NOT_ENOUGH = auto()
    SERVICE_NOT_AVAILABLE = auto()
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = auto()
    UNKNOWN_ERROR = auto()


class PutMessageResult(NamedTuple):
    """Result of putting one message; ``appended`` is ``None`` if nothing was stored."""

    status: PutMessageStatus
    appended: Appended | None = None
    queue_offset: int = -1
    store_host: Host | None = None
    reason: str = ""
    """Why the message was refused, in one sentence."""

    @property
    def ok(self) -> bool:
        """Return whether the message is stored (even if a flush or follower was late)."""
        return self.appended is not None

    @property
    def phy_offset(self) -> int:
        """Return the phy offset of the record; -1 if it was not stored."""
        return self.appended.phy_offset if self.appended else -1

    @property
    def message_id(self) -> str:
        """Return the offset message id, empty if nothing was stored."""
        if self.appended is None or self.store_host is None:
            return ""
        return encode_message_id(self.store_host, self.appended.phy_offset)


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


@dataclass(slots=True, repr=False)
class PyGetMessageResult:
    """The result of one pull.

    ``records`` are views of the log (see ``MappedFile.select``: hold them for one request only), in
    queue order; ``queue_offsets`` are their offsets. Continue at ``next_begin_offset``.

    A record that is not where its unit points is in ``damaged`` instead; a pull that found nothing
    else returns ``MESSAGE_WAS_REMOVING``, as RocketMQ does for records that it cannot read.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    total_bytes: int = 0
    hole: range | None = None
    """With ``OFFSET_FOUND_NULL``: the units of the queue that are missing."""

    damaged: list[DamagedRecord] = field(default_factory=list)
    """Damaged records before ``next_begin_offset``, which the pull skipped."""

    def __repr__(self) -> str:
        fields = {name: repr(getattr(self, name)) for name in self.__dataclass_fields__}
        fields["records"] = f"<{len(self.records)} views>"  # their addresses are of no use
        return f"{type(self).__name__}({', '.join(f'{n}={v}' for n, v in fields.items())})"

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.records)

    def messages(self) -> list[StoredMessage]:
        """Return the decoded records; body and properties are decoded on access.

        A record that cannot be decoded is moved from ``records`` and ``queue_offsets`` to
        ``damaged``.
        """
        return _messages(self)

    def leave_out(
        self, queue_offset: int, phy_offset: int, size: int, fault: CorruptionError
    ) -> None:
        """Record a damaged record, and the matching status if nothing was found so far."""
        _leave_out(self, queue_offset, phy_offset, size, fault)


def _messages(result: PyGetMessageResult) -> list[StoredMessage]:
    try:
        return [StoredMessage(record) for record in result.records]
    except CorruptionError:
        return _sound_messages(result)


def _sound_messages(result: PyGetMessageResult) -> list[StoredMessage]:
    """Return the messages of a pull; damaged ones are removed from the result."""
    sound: list[StoredMessage] = []
    pairs = [*zip(result.queue_offsets, result.records, strict=True)]
    result.queue_offsets.clear()
    result.records.clear()
    for queue_offset, record in pairs:
        try:
            message = StoredMessage(record)
        except CorruptionError as exc:
            _leave_out(result, queue_offset, exc.phy_offset or 0, len(record), exc)
            result.total_bytes -= len(record)
            continue
        result.queue_offsets.append(queue_offset)
        result.records.append(record)
        sound.append(message)
    if not sound:
        result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
    return sound


def _leave_out(
    result: PyGetMessageResult,
    queue_offset: int,
    phy_offset: int,
    size: int,
    fault: CorruptionError,
) -> None:
    """Record in a pull's result that a record was left out."""
    result.damaged.append(DamagedRecord(queue_offset, phy_offset, size, str(fault)))
    if not result.records:
        result.status = GetMessageStatus.MESSAGE_WAS_REMOVING


QueryMessageResult = _results.QueryMessageResult
if TYPE_CHECKING:
    GetMessageResult = PyGetMessageResult
else:
    _results.bind_results(_messages, _leave_out)
    GetMessageResult = _results.GetMessageResult
