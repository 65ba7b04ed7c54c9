"""Bulk access to units: the interface of a backend for moving whole queues to another backend.

A *source* reads the queues of a quiescent store, a *sink* writes queues in key order into its own
folder, and the folders of several sinks are *assembled* into the queues of one store. Units are
rows of packed ``QueueUnit``: columns for numpy, bytes for files.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cqstore.store.entry_points import entries
from cqstore.store.errors import StoreConfigError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.settings.config import StoreConfig
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.bulk"

UNIT_ROWS = QUEUE_UNIT.dtype
"""A packed ``QueueUnit`` per row: ``phy_offset``, ``size``, ``tags_code``, ``store_timestamp``."""
_PHY_BYTES = 8
NO_TIMESTAMP = -1
"""Store timestamp of a unit whose backend does not store it."""
UnitRows = NDArray[np.void]
"""Shape (n,), type ``UNIT_ROWS``, C order."""


def row_table(rows: UnitRows) -> NDArray[np.uint8]:
    """Return the rows as bytes, shape (n, 28); shares their memory."""
    return rows.view(np.uint8).reshape(-1, QUEUE_UNIT.size)


def key_order(queue: QueueKey) -> tuple[int, bytes, int]:
    """Return the sort key of a queue, in the order of RocksDB's keys.

    The key is the length of the topic's UTF-8, the topic, and the queue id as an unsigned number.
    """
    name = _utf_8(queue.topic)
    return len(name), name, queue.queue_id & 0xFFFFFFFF


def topics_in_key_order(topics: Iterable[str]) -> list[str]:
    """Return topics in the order of their queues' keys, without keeping a key for each."""
    found = sorted(topics, key=_utf_8)
    found.sort(key=lambda topic: len(_utf_8(topic)))
    return found


def _utf_8(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")


def merge_queues(
    one: Iterator[QueueKey], other: Iterator[QueueKey]
) -> Iterator[tuple[QueueKey, bool, bool]]:
    """Yield the queues of two lists in key order, in this order, and whether each list has them."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        if left is not None and left == right:
            yield left, True, True
            left, right = next(one, None), next(other, None)
        elif right is None or (left is not None and key_order(left) < key_order(right)):
            assert left is not None
            yield left, True, False
            left = next(one, None)
        else:
            yield right, False, True
            right = next(other, None)


class UnitRun(NamedTuple):
    """Consecutive units of one queue."""

    queue_offset: int
    """Queue offset of the first row."""
    rows: UnitRows


class UnitSource(Protocol):
    """Reads whole queues of a store that does not change meanwhile. One thread at a time."""

    has_timestamps: bool
    """The rows have store timestamps; otherwise these are ``NO_TIMESTAMP``."""

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield, in key order, each queue of (after, up_to] that has a unit or an end.

        Also queues that no list of the backend names any more, if their units exist.
        """

    def next_offset(self, queue: QueueKey) -> int:
        """Return the next offset of the queue as the backend has stored it; 0 if unknown."""

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Fill ``rows`` with consecutive units from ``queue_offset`` on; return their number.

        Fewer than requested: a unit is missing, or the queue ends. Tags codes are resolved ones.

        Raises:
            CorruptionError: a unit cannot be read, or its tags code cannot be found.
        """

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Yield all stored units of a queue, in order, at most ``max_units`` per run.

        Includes expired units, but no pre-blanks. Units are missing between two runs that are not
        adjacent.
        """

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Return the bytes after the end of ``queue`` that RocketMQ would read as units.

        At its next start RocketMQ uses them, even if they are repeated or of another queue.
        ``None``: there are none.
        """

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return whether the same bytes may contain more units if the log continues."""

    def close(self) -> None:
        """Release all resources. A second call does nothing."""


class WrittenEnd(NamedTuple):
    """The end of a queue as the backend has stored it."""

    queue: QueueKey
    next_offset: int
    last_phy: int
    """Phy offset of the last unit; negative if the queue has no unit."""


@runtime_checkable
class HasEnds(Protocol):
    """A ``UnitSource`` that has the ends of all queues."""

    def written_ends(
        self, after: QueueKey | None = None, up_to: QueueKey | None = None
    ) -> Iterator[WrittenEnd]:
        """Yield the ends of the queues of (after, up_to], in key order, without reading units.

        A queue with an unreadable entry is left out.
        """


class WholeQueue(NamedTuple):
    """All units of a queue: without a hole, and with its end and no bytes after the last one."""

    queue_offset: int
    """Queue offset of the first unit."""
    rows: bytes | bytearray
    """Packed rows, at least one."""

    @property
    def first_phy(self) -> int:
        """Return the phy offset of the first unit."""
        return int.from_bytes(self.rows[:_PHY_BYTES], signed=True)

    @property
    def last_phy(self) -> int:
        """Return the phy offset of the last unit."""
        return int.from_bytes(self.rows[-QUEUE_UNIT.size :][:_PHY_BYTES], signed=True)


@runtime_checkable
class HasWholeQueues(Protocol):
    """A ``UnitSource`` that reads short queues quickly."""

    def whole(self, queue: QueueKey) -> WholeQueue | None:
        """Return all units of a queue that ``queues`` has yielded, with resolved tags codes.

        ``None``: the queue is not a short one, or in any way irregular: use the other methods.
        """

    def facts_of(self, queue: QueueKey) -> bytes | None:
        """Return ``file_facts`` of a queue's files from before they are read; ``None``: unknown."""


@runtime_checkable
class ReadsFewUnits(Protocol):
    """A ``UnitSource`` that reads a few units of a queue quickly, without arrays."""

    def few_units(
        self, queue: QueueKey, begin: int, end: int, low_phy: int, high_phy: int
    ) -> tuple[bytes, int] | None:
        """Return the units [``begin``, ``end``) as packed rows, with resolved tags codes.

        And how many of them are records outside the log, [``low_phy``, ``high_phy``). ``None``:
        they are many or irregular, or one is missing: use ``fill``.
        """


class UnitSink(Protocol):
    """Writes queues, in key order, into its own folder. One thread at a time."""

    def add(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> None:
        """Add consecutive units; within a queue, each call continues where the last one ended."""

    def end(self, queue: QueueKey, queue_offset: int) -> None:
        """Set the next offset of the queue: no unit follows, in this sink or another.

        All its units may have expired: then ``add`` was not called.
        """

    def finish(self) -> int:
        """Make everything durable; return the number of bytes written."""

    def abandon(self) -> None:
        """Release all resources; written data is discarded."""


class NameFault(NamedTuple):
    """The reason why a backend does not support a topic, because of its name."""

    code: str
    """A slug for this kind of fault: ``name-too-long``."""
    sentence: str
    """A sentence about all topics with this fault, for people."""
    by_length: bool = False
    """The length of the name may be the fault."""
    limit: int | None = None
    """Limit of a name, in bytes of UTF-8."""


class QueueTotals(NamedTuple):
    """The amount of data to move."""

    topics: int
    queues: int
    units: int
    files: int
    """Queue files that contain these units, at least one per queue."""
    units_per_file: int
    key_bytes: int
    """Bytes of UTF-8 of the topics' names, counted once per queue."""


class DiskUse(NamedTuple):
    """Upper limit of the disk use of queues."""

    disk_bytes: int
    entries: int
    """Number of files and folders."""
    mapped_files: int | None
    """Files that a broker maps; ``None``: it maps no files of this backend."""
    tables: int = 0
    """Files that a broker keeps open without a map."""
    apparent_bytes: int | None = None
    """Size of the files including unwritten parts; ``None``: there are no such parts."""


class BulkBackend(Protocol):
    """The bulk operations of one backend. Stateless."""

    name: str
    """Name of the backend, as in ``--backend``."""
    keeps_timestamps: bool
    """Its units have store timestamps, taken from the log if the source has none."""
    needs_whole_queues: bool
    """If units are missing in such a queue, a broker resets its consumers to offset 0."""

    def name_faults(self, topic: str, config: StoreConfig) -> Iterator[NameFault]:
        """Yield why this backend, under ``config``, does not support queues of ``topic``."""

    def footprint(self, totals: QueueTotals) -> DiskUse:
        """Estimate the disk use of ``totals``."""

    def source(self, context: QueueStoreContext) -> UnitSource:
        """Open the queues of a store; changes nothing."""

    def sink(self, folder: Path, config: StoreConfig) -> UnitSink:
        """Start writing queues into ``folder``, which exists and is empty."""

    def slice_units(self, config: StoreConfig) -> int:
        """Return the number of units that divides the parts of a queue shared by two sinks."""

    def check_queue(self, queue: QueueKey) -> None:
        """Refuse a queue that this backend does not support.

        Raises:
            IllegalMessageError: the queue is not supported; the error names it.
        """

    def assemble(
        self, parts: Sequence[Path], paths: StorePaths, config: StoreConfig, phy_offset: int
    ) -> None:
        """Turn the folders of sinks, in key order, into the queues of a new root, durably.

        The queues contain every record of the log that ends at or before ``phy_offset``. ``parts``
        may be linked or moved; after an interruption, the same call can be repeated.

        Raises:
            StoreError: a part is missing, or an operation failed.
        """

    def publish(self, made: StorePaths, paths: StorePaths, config: StoreConfig) -> None:
        """Move the queues of root ``made`` into root ``paths``, which has none of this backend.

        Durable when it returns. After an interruption the files are either not recognized as
        queues, or complete, and the same call continues.
        """

    def withdraw(self, paths: StorePaths, folder: Path, prefix: str = "") -> None:
        """Move all queues of this backend into ``folder``; after the first move there are none.

        With a ``prefix``, only those of topics that begin with it. After an interruption the same
        call continues. Without queues it does nothing.

        Raises:
            StoreConfigError: there is a ``prefix``, and the backend has all topics in one place.
        """


def bulk_backend(name: str) -> BulkBackend:
    """Return the bulk operations of backend ``name``.

    Raises:
        StoreConfigError: the backend does not exist, or has no bulk operations.
    """
    for entry in entries(_GROUP):
        if entry.name == name:
            return cast("BulkBackend", load_whole(entry)())
    known = ", ".join(bulk_names())
    raise StoreConfigError(
        f"cannot move queues to or from backend {name!r}: not supported (supported: {known})"
    )


def bulk_names() -> list[str]:
    """Return the backends whose queues can be moved, sorted."""
    return [entry.name for entry in entries(_GROUP)]
