"""ConsumeQueueStore: the promise that every backend keeps to the message store.

One object holds all queues of a store. The message store is its only writer: ``put_batch``,
``truncate_dirty`` and ``clean_expired`` are called by one thread at a time (the dispatcher holds a
lock). ``delete_topics`` may run beside ``put_batch``, for no unit of those topics is put meanwhile.
``flush`` and every reading method may be called by any thread at any time, also while a batch is
being put. Reading never writes, on disk or off it, save into caches.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from store.config import StoreConfig
from store.installed import Backend
from store.paths import StorePaths
from store.queue.context import QueueStoreContext
from store.queue.estimate import MessageFilter, estimate
from store.queue.facts import (
    QueueDamage,
    QueueFinding,
    QueueRestart,
    QueueSpan,
    QueueStat,
    QueueType,
)
from store.queue.time_search import BoundaryType, search_offset
from store.queue.units import CqUnit, QueueKey, UnitBatch, UnitBlock


class ConsumeQueueStore(Backend, ABC):
    """All consume queues of one store on one backend."""

    counts_in_checkpoint: bool = False
    """The store checkpoint's ``logics`` fields speak of this backend, as of RocketMQ's files."""
    lmq_needs_multi_dispatch: bool = False
    """Light queues need ``enableMultiDispatch`` beside ``enableLmq``, as in RocketMQ."""
    begins_with_blanks: ClassVar[bool] = False
    """Before a queue's first unit there may be units that are none, in its first file."""
    fills_holes: ClassVar[bool] = False
    """A replay brings back units that are missing before others of their queue."""

    def __init__(self, context: QueueStoreContext) -> None:
        """Keep ``context``; touches no file."""
        self.context = context

    # ---- finding and opening

    @classmethod
    @abstractmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether ``paths`` holds queues of this backend. Changes nothing.

        Raises:
            RefusedStoreError: it does, twice or in a way that leaves two readings.
        """

    @classmethod
    def check_settings(cls, config: StoreConfig) -> None:
        """Refuse settings that queues could not be opened with. Touches no file.

        Raises:
            StoreConfigError, UnsupportedFormatError: the sentence names the setting.
        """
        _ = config

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folders that its queues may lie in; others' may lie there too."""
        return [paths.consume_queue]

    @classmethod
    def unlike_others(cls, paths: StorePaths) -> Path | None:
        """Return the folder of queues that are there and that no other backend could hold."""
        _ = paths
        return None

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the files and folders that make up this backend's queues, no others'.

        Moved away together they leave a store without queues of this backend.
        """
        _ = paths
        return []

    @classmethod
    def dump_file(cls, path: Path) -> Iterator[dict[str, object]] | None:
        """Return the rows of one bare file, ``None`` if it is no file of this backend's.

        The folders around it say what it is.
        """
        _ = path
        return None

    @classmethod
    def watch(cls, paths: StorePaths) -> Sequence[QueueStat]:
        """Return what files alone tell of queues that another process has open.

        Opens no database, takes no lock, changes nothing.
        """
        _ = paths
        return ()

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return up to which phy offset records have surely been dispatched to these queues.

        For queues that are not opened; by a glance, changes nothing. 0 if it cannot be told.
        """
        _ = context
        return 0

    @abstractmethod
    def load(self) -> Self:
        """Open what exists; read-write: create what does not. Returns self.

        On failure everything that was opened is closed again.

        Raises:
            CorruptionError: a file is of the wrong size or has an impossible name.
            StoreLockedError: another opener holds the database.
        """

    @abstractmethod
    def recover(self) -> None:
        """Find the real end of every queue that needs it. Read-only: in memory alone.

        After a clean stop the work is bounded (the last files of a queue); units that were never
        completely written are cut off. Call once, after ``load``, before anything else.
        """

    @abstractmethod
    def dispatch_from_phy_offset(self) -> int:
        """Return the log position from which records may be missing in the queues.

        Every record that ends at or below it is in its queue, durably if the last exit was not
        clean. 0 if nothing is known. Asked after ``recover`` and before the first ``put_batch``.
        """

    def damaged_queues(self) -> Sequence[QueueDamage]:
        """Return the queues that opening, or the replay since, has found damaged or suspect.

        Units for a damaged queue are held back, for it is to be built anew, until
        ``damage_is_settled``; reading it tells holes. All other queues are as ever.
        """
        return ()

    def damage_is_settled(self) -> None:
        """Take units for every queue again; called once no queue is going to be built anew."""

    def watermarks(self) -> dict[str, int]:
        """Return ``dispatch_from_phy_offset`` of each part that is in use, by its name."""
        return {self.name: self.dispatch_from_phy_offset()}

    def check_topic(self, topic: str) -> None:
        """Refuse a topic whose queues this backend could not hold; asked before the log takes it.

        Raises:
            IllegalMessageError: a reserved name, one too long for a key, one that is a path.
        """
        _ = topic

    # ---- writing (one thread at a time)

    @abstractmethod
    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Store the units of ``batch``, visible to every reader when it returns.

        Ordered: within a queue, units come in log order. Idempotent: a unit that the queue has
        already is left as it is. A unit at the queue's end is appended; a first unit may have any
        offset (the units before it have expired). A unit *below* the end whose record lies
        *behind* that of the queue's last unit begins a new life of the queue: the units from its
        offset on are dropped, and the restart is returned. Not durable until ``flush``: after a
        crash the caller replays the log from ``dispatch_from_phy_offset``.

        Raises:
            QueueGapError: a unit lies beyond the end of a queue that has live units.
            IllegalMessageError: the topic cannot be stored by this backend.
            ConsumeQueueError: the backend failed; what of the batch is stored is undefined, and
                the store must be opened again.
        """

    @abstractmethod
    def truncate_dirty(self, phy_offset: int) -> int:
        """Drop every unit whose record lies at or behind ``phy_offset``, the log's new end.

        Returns how many queues were cut. The caller has flushed nothing in between.
        """

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Let units of records below ``min_phy_offset`` go at any time from now on.

        Called once recovery is over; the log files below have gone for good.
        """
        _ = min_phy_offset

    @abstractmethod
    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Let go of units whose records lie below ``min_phy_offset``, the log's minimum.

        ``expired``: every queue that had records in the log files that have just been deleted,
        with the offset behind its last one there; the work is then bounded by those files. Without
        it every queue may have to be looked at. A queue never loses its next offset. Returns how
        many files or queues gave something back, as far as that is known at once: a backend may go
        on in the background.
        """

    @abstractmethod
    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Let a queue without units go on at ``queue_offset``: all before it have expired.

        Minimum and maximum are that offset then. Durable after ``flush``.
        """

    @abstractmethod
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Remove every queue of exactly these topics; durable when it returns. Unknown: no error.

        May run beside ``put_batch``: the caller sees to it that no unit of ``topics`` is put. Next
        offsets that were assigned are the caller's to forget.
        """

    @abstractmethod
    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove one queue, to be put anew; durable when it returns. Unknown: no error."""

    @abstractmethod
    def flush(self, least_pages: int = 0) -> None:
        """Make everything that ``put_batch`` took before the call durable before it returns.

        May run beside ``put_batch``, and keeps it from nothing. With ``least_pages`` only a part is
        written ahead of the next whole flush: what has as many changed pages of 4 KiB.

        Raises:
            ConsumeQueueError: it could not; the store must be opened again.
        """

    # ---- reading (any thread)

    @abstractmethod
    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield every queue (of ``topic``) that was ever written, in an order of the backend's own.

        Queues of one topic stand together. ``after``: go on behind that queue, so that a caller
        can page. ``prefix``: of topics that begin so, past all others. Memory does not grow with
        the number of queues.
        """

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield what ``queues`` does with ``min_offset`` and ``max_offset`` of each."""
        for key in self.queues(topic, after):
            yield QueueSpan(key, self.min_offset(*key), self.max_offset(*key))

    def topics(self, prefix: str = "") -> Iterator[str]:
        """Yield each topic that has a queue and begins with ``prefix``, once."""
        last = None
        for topic, _ in self.queues(prefix=prefix):
            if topic != last:
                yield topic
            last = topic

    @abstractmethod
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset behind the last unit; 0 for an unknown queue."""

    @abstractmethod
    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the first unit whose record is in the log.

        ``max_offset`` if every record has expired; 0 for an unknown queue. Pre-blank units of a
        file do not count.
        """

    @abstractmethod
    def read_units(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Return at most ``max_count`` consecutive units from ``queue_offset`` on.

        Empty with ``BlockStop.END`` at or behind ``max_offset`` or below 0, and for unknown
        queues. A unit that should exist and does not ends the block with ``BlockStop.HOLE`` and
        its range; the block is empty if the hole begins at ``queue_offset``. Units of expired
        records may be returned as long as they are there: ask ``min_offset``.
        """

    @abstractmethod
    def unit_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time, ms, of the record of one unit; -1 without unit or record."""

    @abstractmethod
    def total_size_bytes(self) -> int:
        """Return what the queues take on disk, real bytes (allocated blocks)."""

    @abstractmethod
    def check_files(self) -> Iterator[QueueFinding]:
        """Yield what is wrong in the backend's own files: sizes, names, keys, stored minima.

        Units themselves are compared with the log by the caller.
        """

    @property
    def units_per_file(self) -> int:
        """Return the units of one queue file: a pull never passes a multiple of it.

        On every backend, so that moving queues changes no answer; asked after ``load``.
        """
        return self.context.config.units_per_file

    def parts(self) -> Sequence["ConsumeQueueStore"]:
        """Return the stores that this one is made of: itself, unless it combines several."""
        return (self,)

    def describe(self) -> dict[str, object]:
        """Return facts for ``info`` (engine, versions, folders), label → value."""
        return {}

    def stats(self) -> Sequence[QueueStat]:
        """Return numbers to watch; cheap, whatever the number of queues. Any thread."""
        return ()

    def written_bytes(self) -> Mapping[str, int]:
        """Return the bytes written to disk since the opening, by cause, as the backend counts them.

        Empty where it counts none. Takes about a millisecond. Any thread.
        """
        return {}

    def queue_type(self, topic: str) -> QueueType:
        """Return the kind of ``topic``'s queues."""
        _ = topic
        return QueueType.SIMPLE

    def resolve_tags_code(self, topic: str, queue_id: int, tags_code: int) -> int | None:
        """Return the tags code behind an extension address, other codes as they are.

        ``None``: the address leads nowhere.
        """
        _ = topic, queue_id
        return tags_code

    def iterate(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[CqUnit]:
        """Yield the units from ``queue_offset`` to the end or to the first hole.

        Batch queues begin with the unit that holds ``queue_offset``.
        """
        while True:
            block = self.read_units(topic, queue_id, queue_offset, _ITERATE_UNITS)
            for offset, (phy_offset, size, code) in enumerate(block.rows(), queue_offset):
                tags_code = self.resolve_tags_code(topic, queue_id, code)
                yield CqUnit(offset, phy_offset, size, tags_code)
            queue_offset += block.count
            if block.count < _ITERATE_UNITS:
                return

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Return the offset that ``timestamp`` (ms) leads to, always within [min, max].

        LOWER: the first unit stored at or after it, ``max_offset`` if there is none. UPPER: the
        last unit stored at or before it, ``min_offset`` if there is none. 0 for an empty queue.
        """
        return search_offset(
            self.min_offset(topic, queue_id),
            self.max_offset(topic, queue_id),
            timestamp,
            boundary,
            lambda offset: self.unit_timestamp(topic, queue_id, offset),
        )

    def estimate_message_count(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, matches: MessageFilter
    ) -> int:
        """Estimate how many units of [from_offset, to_offset) ``matches`` lets through.

        The range is first cut to [min, max]. Exact as long as fewer than
        ``max_consume_queue_scan`` units are scanned and at most ``sample_count_threshold`` match.
        """
        start = max(from_offset, self.min_offset(topic, queue_id))
        end = min(to_offset, self.max_offset(topic, queue_id))
        if start >= end:
            return 0
        config = self.context.config
        return estimate(
            self.iterate(topic, queue_id, start),
            end - start,
            matches,
            config.max_consume_queue_scan,
            config.sample_count_threshold,
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return where the queue goes on, from what it has; the writer counts on from there."""
        return self.max_offset(topic, queue_id)

    @abstractmethod
    def close(self) -> None:
        """Flush if read-write, then release everything. A second call does nothing.

        Afterwards every other method raises ``StoreClosedError``.
        """


_ITERATE_UNITS = 1024
