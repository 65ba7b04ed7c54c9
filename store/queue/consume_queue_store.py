"""ConsumeQueueStore: the interface of a backend to the message store.

One object has all queues of a store. The message store is its only writer: ``put_batch``,
``truncate_dirty`` and ``clean_expired`` are called by one thread at a time (the dispatcher holds a
lock). ``delete_topics`` may run concurrently with ``put_batch``, because no unit of those topics is
put meanwhile. Any thread may call ``flush`` at any time, also while a batch is being put.

Split by caller: folders that are not opened (``QueueBackend``), reading queues (``QueueReads``),
and opening, writing and closing here.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import IllegalMessageError
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueDamage, QueueFinding, QueueRestart, QueueStat
from cqstore.store.queue.queue_backend import QueueBackend
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, UnitBatch


class ConsumeQueueStore(QueueBackend, QueueReads):
    """All consume queues of one store on one backend."""

    def __init__(self, context: QueueStoreContext) -> None:
        """Keep ``context``; accesses no file."""
        self.context = context

    # ---- opening

    @abstractmethod
    def load(self) -> Self:
        """Open what exists; read-write: create what is missing. Returns self.

        If it fails, everything that was opened is closed again.

        Raises:
            CorruptionError: a file has a wrong size or an invalid name.
            StoreLockedError: another process has opened the database.
        """

    @abstractmethod
    def recover(self) -> None:
        """Find the real end of every queue that needs it. Read-only: in memory only.

        After a clean stop the work is bounded (the last files of a queue). Incomplete units are cut
        off. Call it once, after ``load``, before any other method.
        """

    @abstractmethod
    def dispatch_from_phy_offset(self) -> int:
        """Return the log position from which records may be missing in the queues.

        Every record that ends at or before it is in its queue, durably if the last exit was not
        clean. 0 if unknown. Called after ``recover`` and before the first ``put_batch``.
        """

    def damaged_queues(self) -> Sequence[QueueDamage]:
        """Return the queues that opening, or the replay since, found damaged or suspect.

        Units for a damaged queue, which will be rebuilt, are held back until ``damage_is_settled``;
        reading the queue returns holes. Other queues work as usual.
        """
        return ()

    def damage_is_settled(self) -> None:
        """Accept units for every queue again; called when no rebuild of a queue is left."""

    def watermarks(self) -> dict[str, int]:
        """Return ``dispatch_from_phy_offset`` of each backend in use, by name."""
        return {self.name: self.dispatch_from_phy_offset()}

    def check_topic(self, topic: str) -> None:
        """Refuse a topic that this backend does not support; called before the log accepts it.

        Raises:
            IllegalMessageError: the name is reserved, too long for a key, or a path.
        """
        _ = topic

    # ---- writing (one thread at a time)

    @abstractmethod
    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Store the units of ``batch``, visible to every reader when it returns.

        Ordered: within a queue, units are in log order. Idempotent: a unit that the queue has
        already is not changed. A unit at the queue's end is appended; a first unit may have any
        offset (the units before it have expired). A unit *before* the end whose record is *after*
        that of the queue's last unit begins a new incarnation of the queue: the units from its
        offset on are dropped, and the restart is returned. Not durable until ``flush``: after a
        crash the caller replays the log from ``dispatch_from_phy_offset``.

        Raises:
            QueueGapError: a unit is beyond the end of a queue that has live units.
            IllegalMessageError: this backend does not support the topic.
            ConsumeQueueError: the backend failed; it is undefined which units are stored, and the
                store must be opened again.
        """

    def takes_batches(self, topic: str) -> bool:
        """Return whether records of inner batches of ``topic`` have units in batch queues here."""
        _ = topic
        return False

    def create_batch_topic(self, topic: str) -> None:
        """Give a topic without queues the type BatchCQ, durably; ``delete_topics`` ends it.

        Raises:
            IllegalMessageError: this backend has no batch queues, or refuses the name.
        """
        raise IllegalMessageError(
            f"cannot create the BatchCQ topic {topic!r}: {self.name} queues have one unit per"
            " message, and a broker loses messages of records that have several"
        )

    @abstractmethod
    def truncate_dirty(self, phy_offset: int) -> int:
        """Drop every unit whose record is at or after ``phy_offset``, the log's new end.

        Returns how many queues were truncated. The caller has flushed nothing in between.
        """

    def catch_up(self) -> bool:
        """Add state that no record of the log contains to lagging queues, durably.

        Called once, after the replay and before ``allow_expiry``. Returns whether the checkpoint
        covers some of these queues; it must be updated first.
        """
        return False

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Allow units of records before ``min_phy_offset`` to be dropped at any time from now on.

        Called once after recovery; the log files before it are durably deleted.
        """
        _ = min_phy_offset

    @abstractmethod
    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Drop units whose records are before ``min_phy_offset``, the log's minimum.

        ``expired``: every queue that had records in the log files that were just deleted, with the
        offset after its last record there; these files then bound the work. Without it every queue
        may have to be checked. A queue never loses its next offset. Returns how many files or
        queues released space, if known at once: a backend may continue in the background.
        """

    @abstractmethod
    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Make a queue without units continue at ``queue_offset``: all units before it expired.

        Min and max are that offset then. Durable after ``flush``.
        """

    @abstractmethod
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Remove all queues of exactly these topics, durably. Unknown topics are not an error.

        May run concurrently with ``put_batch``: the caller ensures that no unit of ``topics`` is
        put, and drops the next offsets that it has assigned.
        """

    @abstractmethod
    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove one queue, which is put again later, durably. An unknown queue is not an error."""

    @abstractmethod
    def flush(self, least_pages: int = 0) -> None:
        """Make everything that ``put_batch`` accepted before the call durable.

        May run concurrently with ``put_batch``, and does not block it. With ``least_pages`` only a
        part is written, ahead of the next full flush: data with at least as many changed pages of 4
        KiB.

        Raises:
            ConsumeQueueError: the flush failed; the store must be opened again.
        """

    # ---- state (any thread)

    @abstractmethod
    def total_size_bytes(self) -> int:
        """Return the disk use of the queues in real bytes (allocated blocks)."""

    def topic_size_bytes(self, topic: str) -> int:
        """Return the size of the queues of ``topic``: allocated blocks, or uncompressed entries.

        By default the sum of several backends, or the size of the units.
        """
        parts = [each for each in self.backends() if each is not self]
        if parts:
            return sum(each.topic_size_bytes(topic) for each in parts)
        units = sum(span.max_offset - span.min_offset for span in self.spans(topic))
        return units * QUEUE_UNIT.size

    @abstractmethod
    def check_files(self) -> Iterator[QueueFinding]:
        """Yield problems of the backend's own files: sizes, names, keys, stored min offsets.

        The caller compares the units with the log.
        """

    def read_through(self, progress: Progress = noop) -> None:
        """Read all stored data once, if opening does not show whether it can be read.

        ``progress`` is called with the numbers of entries and units read.

        Raises:
            CorruptionError: data cannot be read; the error names the repair.
            StoreIOError: a read from disk failed.
        """
        _ = progress

    def backends(self) -> Sequence["ConsumeQueueStore"]:
        """Return the stores that this one consists of: itself, unless it combines several."""
        return (self,)

    def locks(self) -> Sequence[CheckedLock]:
        """Return the locks that writes and reads of the queues take, for ``LockOrder.add``."""
        return ()

    def describe(self) -> dict[str, object]:
        """Return facts for ``info`` (engine, versions, folders), label → value."""
        return {}

    def lacking(self) -> str:
        """Return a sentence on what this machine lacks for this backend; empty: nothing."""
        return ""

    def stats(self) -> Sequence[QueueStat]:
        """Return metrics; cheap for any number of queues. Any thread."""
        return ()

    def written_bytes(self) -> Mapping[str, int]:
        """Return the bytes written to disk since opening, by cause, as counted by the backend.

        Empty if it does not count them. Takes about a millisecond. Any thread.
        """
        return {}

    @abstractmethod
    def close(self, *, flush: bool = True) -> None:
        """Flush if read-write, then release all resources. A second call does nothing.

        Without ``flush`` nothing is written: files that a killed process left stay unchanged.
        Afterwards every other method raises ``StoreClosedError``.
        """
