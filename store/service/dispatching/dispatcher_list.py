"""DispatcherList: calls a program's dispatchers with each record, before queues have it.

The records are read back from the log, so records that are dispatched from memory, replayed by a
recovery or received from a master are handled in the same way. A store without dispatchers reads
nothing.

Source: RocketMQ ``DefaultMessageStore.dispatcherList``, ``CommitLogDispatcher``,
``CommitLogDispatchStore``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    CorruptionError,
    DispatcherError,
    RefusedStoreError,
    StoreConfigError,
)
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import SysFlag
from cqstore.store.record.properties import decode_properties, dispatch_properties
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits

_LOG = StoreLogger(__name__)
_RULES = ScanRules(check_crc=False)  # checked by the append or the recovery
_PASSED_OVER = int(SysFlag.PASSED_OVER)
_NOT_YET = 1 << 63
"""Greater than every phy offset."""


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """A record of the log, as passed to a dispatcher.

    Source: RocketMQ ``DispatchRequest``.
    """

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size: int
    """Size in bytes."""
    tags_code: int
    """Hash of the tags; for a delayed message, its due time."""
    store_timestamp: int
    """Store time in ms since the epoch."""
    sys_flag: int
    """Flags with transaction bits: half and rolled back messages are dispatched too."""
    keys: str | None
    uniq_key: str | None
    properties: dict[str, str]
    _log: CommitLog = field(repr=False, compare=False)

    def message(self) -> StoredMessage:
        """Return the whole record, with its body.

        Raises:
            CorruptionError: the record is no longer in the log.
        """
        return self._log.message(self.phy_offset)


class CommitLogDispatcher(Protocol):
    """Receiver of each record, in log order, before it is added to queues and index.

    One thread at a time calls it: a writer, a reader or a thread of the store. Appends do not wait
    for it. It may put if puts do not wait for the disk. It must not read queues: calls that would
    wait for the dispatch itself raise ``NestedCallError``.

    Delivery is at least once: a recovery repeats the records that queues may lack, and a rebuild of
    all queues repeats all records. An exception stalls the dispatch: readers do not see the record,
    puts are refused, and the next put, or a retry within a second, passes the record again. Errors
    contain the ``name`` of the dispatcher, or its class.

    Source: RocketMQ ``CommitLogDispatcher``.
    """

    def dispatch(self, request: DispatchRequest) -> object:
        """Process the record of ``request``; an exception stalls the dispatch at this record."""


@runtime_checkable
class CommitLogDispatchStore(CommitLogDispatcher, Protocol):
    """A dispatcher that stores its own position, and so gets every record of the log.

    Source: RocketMQ ``CommitLogDispatchStore``.
    """

    def dispatch_from_phy_offset(self) -> int:
        """Return the phy offset to continue at: the end of the last record that was processed.

        Called once, at the end of an open; all records from this offset on are dispatched then.
        """


def require_dispatcher(given: object) -> None:
    """Refuse an object that is not a ``CommitLogDispatcher``.

    Raises:
        StoreConfigError: its method cannot be called.
    """
    if not callable(getattr(given, "dispatch", None)):
        raise StoreConfigError(f"invalid dispatcher {given!r:.60}: it has no dispatch()")


class _Entry:
    """One dispatcher; it is called with records that start at or after ``begin``."""

    def __init__(self, dispatcher: CommitLogDispatcher) -> None:
        self.name = str(getattr(dispatcher, "name", type(dispatcher).__qualname__))
        self.dispatch = dispatcher.dispatch
        self.place = dispatcher if isinstance(dispatcher, CommitLogDispatchStore) else None
        self.begin = 0 if self.place is None else _NOT_YET


class DispatcherList:
    """The dispatchers of one store, in order. Under the lock of the dispatch, or during opening."""

    def __init__(
        self, dispatchers: Sequence[CommitLogDispatcher], log: CommitLog, units: RecordUnits
    ) -> None:
        """Create the list without a position in the log; ``begin`` sets it."""
        self._entries = [_Entry(each) for each in dispatchers]
        self._log = log
        self._units = units
        self.phy_offset = 0
        """Phy offset up to which all dispatchers have processed all records."""
        self._next = 0  # index of the entry to call with the current record
        self.records = 0
        """Records that all dispatchers have processed."""
        self.failures = 0
        """Calls that raised an exception."""

    def begin(self, start: int, wanted: int) -> None:
        """Continue at ``start``, where a record begins, with records from ``wanted`` on."""
        self.phy_offset = max(self.phy_offset, start)
        for entry in self._entries:
            if entry.place is None:
                entry.begin = wanted

    def dispatch_to(self, end: int) -> None:
        """Call all dispatchers with further records that end at or before ``end``.

        Raises:
            DispatcherError: a dispatcher failed; the next call begins with it.
        """
        wanted = min(entry.begin for entry in self._entries)
        for record in self._log.scan_kept(_RULES, self.phy_offset, end):
            if record.phy_offset >= wanted and not record.sys_flag & _PASSED_OVER:
                request = self._request(record)
                while self._next < len(self._entries):
                    self._call(self._entries[self._next], request)
                    self._next += 1
                self.records += 1
            self._next = 0
            self.phy_offset = record.phy_offset + record.size

    def catch_up(self, end: int) -> None:
        """Call dispatchers that store their position with later records of the log, up to ``end``.

        Raises:
            RefusedStoreError: no record begins at the position of a dispatcher.
            DispatcherError: a dispatcher failed.
        """
        for entry in self._entries:
            if entry.place is not None:
                start = self._start_of(entry, entry.place, end)
                for record in self._log.scan_kept(_RULES, start, end) if start < end else ():
                    if not record.sys_flag & _PASSED_OVER:
                        entry.begin = record.phy_offset
                        self._call(entry, self._request(record))
            entry.begin = 0
        self.phy_offset = end

    def _start_of(self, entry: _Entry, place: CommitLogDispatchStore, end: int) -> int:
        """Return the phy offset from which a dispatcher is called.

        Raises:
            DispatcherError: its position cannot be read.
            RefusedStoreError: its position is not a phy offset.
        """
        try:
            wanted = place.dispatch_from_phy_offset()
        except Exception as exc:
            raise self._failed(entry, exc) from exc
        if type(wanted) is not int or wanted < 0:
            raise RefusedStoreError(
                f"the dispatcher {entry.name!r} cannot start: dispatch_from_phy_offset() returned"
                f" {wanted!r:.60}, expected a phy offset"
            )
        low = max(self._log.min_phy_offset(), 0)
        if wanted < low:
            _LOG.warning(
                "the dispatcher %r starts at phy offset %d, not at %d: the log before has expired",
                entry.name, low, wanted,
            )  # fmt: skip
        elif wanted > end:
            _LOG.warning(
                "the dispatcher %r starts at phy offset %d, the end of the log, not at %d",
                entry.name, end, wanted,
            )  # fmt: skip
        elif wanted < end and not self._begins(wanted, end):
            raise RefusedStoreError(
                f"the dispatcher {entry.name!r} cannot start where no record begins",
                phy_offset=wanted,
            )
        return min(max(wanted, low), end)

    def _begins(self, phy_offset: int, end: int) -> bool:
        """Return whether a record, a blank record, or a file begins there."""
        try:
            next(self._log.scan(phy_offset, end), None)
        except CorruptionError:
            return False
        return True

    def _call(self, entry: _Entry, request: DispatchRequest) -> None:
        if request.phy_offset < entry.begin:
            return
        try:
            entry.dispatch(request)
        except Exception as exc:
            raise self._failed(entry, exc, request.phy_offset) from exc

    def _failed(
        self, entry: _Entry, exc: Exception, phy_offset: int | None = None
    ) -> DispatcherError:
        self.failures += 1
        return DispatcherError(
            f"the dispatcher {entry.name!r} failed: {exc!r:.300}", phy_offset=phy_offset
        )

    def _request(self, record: ScannedRecord) -> DispatchRequest:
        """Return the request for a record."""
        known = dispatch_properties(record.properties)
        return DispatchRequest(
            record.topic, record.queue_id, record.queue_offset, record.phy_offset, record.size,
            self._units.tags_code(record.topic, record.store_timestamp, known),
            record.store_timestamp, record.sys_flag, known.keys, known.uniq_key,
            decode_properties(record.properties), self._log,
        )  # fmt: skip
