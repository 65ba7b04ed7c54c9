from collections.abc import Iterable
from typing import ClassVar

from cqstore.store.errors import CorruptionError
from cqstore.store.record._stored import StoredMessage
from cqstore.store.service.pull_status import DamagedRecord, GetMessageStatus

class GetMessageResult:
    """The result of one pull.

    ``records`` are views of the log (see ``MappedFile.select``: hold them for one request only), in
    queue order; ``queue_offsets`` are their offsets. Continue at ``next_begin_offset``.

    A record that is not where its unit points is in ``damaged`` instead; a pull that found nothing
    else returns ``MESSAGE_WAS_REMOVING``, as RocketMQ does for records that it cannot read.
    """

    __match_args__ = (
        "status", "next_begin_offset", "min_offset", "max_offset", "records", "queue_offsets",
        "total_bytes", "hole", "damaged",
    )  # fmt: skip
    __hash__: ClassVar[None]  # type: ignore[assignment]
    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview]
    """Views of the log, in queue order."""
    queue_offsets: list[int]
    """The queue offsets of the records."""
    total_bytes: int
    hole: range | None
    """With ``OFFSET_FOUND_NULL``: the units of the queue that are missing."""
    damaged: list[DamagedRecord]
    """Damaged records before ``next_begin_offset``, which the pull skipped."""

    def __init__(
        self,
        status: GetMessageStatus,
        next_begin_offset: int,
        min_offset: int,
        max_offset: int,
        records: list[memoryview] | None = None,
        queue_offsets: list[int] | None = None,
        total_bytes: int = 0,
        hole: range | None = None,
        damaged: list[DamagedRecord] | None = None,
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    @property
    def raw(self) -> bytes:
        """The bytes of all records in queue order, as a broker sends them to a client: a copy."""

    def record_count(self) -> int:
        """Return the number of records, without creating their views."""

    def messages(self) -> list[StoredMessage]:
        """Return the decoded records; body and properties are decoded on access.

        A record that cannot be decoded is moved from ``records`` and ``queue_offsets`` to
        ``damaged``.
        """

    def leave_out(
        self, queue_offset: int, phy_offset: int, size: int, fault: CorruptionError
    ) -> None:
        """Record a damaged record, and the matching status if nothing was found so far."""

class QueryMessageResult(list[StoredMessage]):
    """The newest messages with a key, in log order: a list with a flag for more.

    ``has_more``: older messages match the query too; use a larger ``max_num`` to get them.
    """

    has_more: bool
    def __init__(
        self, messages: Iterable[StoredMessage] = (), *, has_more: bool = False
    ) -> None: ...
