"""Units in bulk: what a backend offers for moving whole queues to another backend.

A *source* reads the queues of a quiescent store, a *sink* writes queues in key order into
a folder of its own, and the folders of several sinks are *assembled* into the queues of one store.
Units are rows of packed ``QueueUnit``: columns for numpy, bytes for files.
"""

from collections.abc import Iterator, Sequence
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
"""One packed ``QueueUnit`` a row: ``phy_offset``, ``size``, ``tags_code``, ``store_timestamp``."""
NO_TIMESTAMP = -1
"""Store timestamp of a unit whose backend does not keep it."""
UnitRows = NDArray[np.void]
"""Shape (n,), type ``UNIT_ROWS``, C order."""


def row_table(rows: UnitRows) -> NDArray[np.uint8]:
    """Return the rows as bytes, shape (n, 28); shares their memory."""
    return rows.view(np.uint8).reshape(-1, QUEUE_UNIT.size)


def key_order(queue: QueueKey) -> tuple[int, bytes, int]:
    """Return what sorts queues as RocksDB sorts their keys.

    By the length of the topic's UTF-8, the topic, the queue id as an unsigned number.
    """
    name = queue.topic.encode("utf-8", "surrogateescape")
    return len(name), name, queue.queue_id & 0xFFFFFFFF


class UnitRun(NamedTuple):
    """Units of one queue without a gap."""

    queue_offset: int
    """Of the first row."""
    rows: UnitRows


class UnitSource(Protocol):
    """Reads whole queues of a store that does not change meanwhile. One thread at a time."""

    has_timestamps: bool
    """The rows have store timestamps; else they are ``NO_TIMESTAMP``."""

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield, in key order, each queue of (after, up_to] that has a unit or an end.

        Also queues that no list of the backend's names any more, if their units are there.
        """

    def next_offset(self, queue: QueueKey) -> int:
        """Return where the queue goes on as the backend has it written down; 0 if unknown."""

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Fill ``rows`` with consecutive units from ``queue_offset`` on; return how many there are.

        Fewer than asked for: a unit is missing there, or the queue ends. Tags codes are real ones.

        Raises:
            CorruptionError: a unit cannot be read, or its tags code cannot be found.
        """

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Yield everything that is stored of a queue, in order, at most ``max_units`` a run.

        Expired units too; no pre-blanks. Between two runs that do not meet units are missing.
        """

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Return what lies behind the end of ``queue`` and RocketMQ would take for units.

        It takes them at its next start, repeated or foreign as they are. ``None``: nothing.
        """

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return whether the same bytes may hold more units where the log goes on."""

    def close(self) -> None:
        """Release everything. A second call does nothing."""


@runtime_checkable
class HasEnds(Protocol):
    """A ``UnitSource`` that knows the ends of all queues."""

    def written_ends(self) -> Iterator[tuple[QueueKey, int]]:
        """Yield queues with where they go on, in key order, without a look at their units.

        One whose entry says nothing that can be read is left out.
        """


class UnitSink(Protocol):
    """Writes queues, in key order, into a folder of its own. One thread at a time."""

    def add(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> None:
        """Take units that follow each other; in a queue, each call goes on where the last ended."""

    def end(self, queue: QueueKey, queue_offset: int) -> None:
        """Note that the queue goes on at ``queue_offset``: no unit follows, here or elsewhere.

        All its units may have expired: then nothing was added.
        """

    def finish(self) -> int:
        """Make everything durable; return the bytes that were written."""

    def abandon(self) -> None:
        """Release everything; what was written is discarded."""


class NameFault(NamedTuple):
    """What keeps a topic, for its name alone, from a backend."""

    code: str
    """A word for this kind of fault: ``name-too-long``."""
    sentence: str
    """About all topics that have it, for people."""
    by_length: bool = False
    """How long the name is may be the fault."""
    limit: int | None = None
    """Bytes of UTF-8 that a name may have."""


class QueueTotals(NamedTuple):
    """How much there is to be moved."""

    topics: int
    queues: int
    units: int
    files: int
    """Queue files that hold these units, at least one a queue."""
    units_per_file: int
    key_bytes: int
    """UTF-8 bytes of the topics' names, once a queue."""


class DiskUse(NamedTuple):
    """What queues take on disk, at most."""

    disk_bytes: int
    entries: int
    """Files and folders."""
    mapped_files: int | None
    """Files that a broker maps; ``None``: it maps none of this backend's."""
    tables: int = 0
    """Files that it has open without a map."""
    apparent_bytes: int | None = None
    """Of the files with all that was never written; ``None``: there is nothing such."""


class BulkBackend(Protocol):
    """What one backend can do with whole queues. Stateless."""

    name: str
    """The backend's, as ``--backend`` takes it."""
    keeps_timestamps: bool
    """Its units have store timestamps, which come from the log where the source has none."""
    needs_whole_queues: bool
    """A broker sends a consumer that meets missing units in such a queue back to offset 0."""

    def name_faults(self, topic: str, config: StoreConfig) -> Iterator[NameFault]:
        """Yield why this backend, under ``config``, cannot hold queues of ``topic``."""

    def footprint(self, totals: QueueTotals) -> DiskUse:
        """Estimate what so much will take."""

    def source(self, context: QueueStoreContext) -> UnitSource:
        """Open the queues of a store; changes nothing."""

    def sink(self, folder: Path, config: StoreConfig) -> UnitSink:
        """Begin to write queues into ``folder``, which exists and is empty."""

    def slice_units(self, config: StoreConfig) -> int:
        """Return of how many units the parts of a queue that two sinks share are multiples."""

    def check_queue(self, queue: QueueKey) -> None:
        """Refuse a queue that this backend cannot hold.

        Raises:
            IllegalMessageError: it cannot; the sentence names it.
        """

    def assemble(
        self, parts: Sequence[Path], paths: StorePaths, config: StoreConfig, phy_offset: int
    ) -> None:
        """Make the folders of sinks, in key order, into the queues of a new root, durably.

        The queues hold every record of the log that ends at or below ``phy_offset``. ``parts`` may
        be linked to or moved; interrupted, the same call does it again.

        Raises:
            StoreError: something is missing or refused.
        """

    def publish(self, made: StorePaths, paths: StorePaths, config: StoreConfig) -> None:
        """Put the queues of root ``made`` into root ``paths``, which has none of this backend.

        Durable when it returns. If interrupted, the files are either not taken for queues, or they
        are whole, and the same call continues.
        """

    def withdraw(self, paths: StorePaths, folder: Path) -> None:
        """Move all queues of this backend into ``folder``; from the first move on there are none.

        Interrupted, the same call goes on. Without queues it does nothing.
        """


def bulk_backend(name: str) -> BulkBackend:
    """Return what backend ``name`` offers.

    Raises:
        StoreConfigError: it offers nothing, or there is no such backend.
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
