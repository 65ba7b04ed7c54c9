"""ConsumeQueueStore: the promise that every backend keeps to the message store.

One object holds all queues of a store. The message store is its only writer: ``put_batch``,
``truncate_dirty`` and ``clean_expired`` are called by one thread at a time (the dispatcher holds a
lock). ``delete_topics`` may run beside ``put_batch``, for no unit of those topics is put meanwhile.
``flush`` may be called by any thread at any time, also while a batch is being put.

Split by caller: of folders that are not opened (``QueueBackend``), of queues that are read
(``QueueReads``), and here of opening, writing and closing.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueDamage, QueueFinding, QueueRestart, QueueStat
from cqstore.store.queue.queue_backend import QueueBackend
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.queue.units import QueueKey, UnitBatch


class ConsumeQueueStore(QueueBackend, QueueReads):
    """All consume queues of one store on one backend."""

    def __init__(self, context: QueueStoreContext) -> None:
        """Keep ``context``; touches no file."""
        self.context = context

    # ---- opening

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

        Units for a damaged queue are held back, for it is to be rebuilt, until
        ``damage_is_settled``; reading it shows holes. All other queues are as ever.
        """
        return ()

    def damage_is_settled(self) -> None:
        """Take units for every queue again; called once no queue is going to be rebuilt."""

    def watermarks(self) -> dict[str, int]:
        """Return ``dispatch_from_phy_offset`` of each backend that is in use, by its name."""
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
        *behind* that of the queue's last unit begins a new incarnation of the queue: the units from
        its offset on are dropped, and the restart is returned. Not durable until ``flush``: after a
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

    def catch_up(self) -> bool:
        """Give queues that lagged what no record of the log contains, durably.

        Called once, after the replay and before ``allow_expiry``. Returns whether such queues are
        among them as the checkpoint is for, which is to vouch for them first.
        """
        return False

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Allow units of records below ``min_phy_offset`` to be dropped at any time from now on.

        Called once recovery is over; the log files below are durably deleted.
        """
        _ = min_phy_offset

    @abstractmethod
    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Drop units whose records lie below ``min_phy_offset``, the log's minimum.

        ``expired``: every queue that had records in the log files that have just been deleted,
        with the offset behind its last one there; the work is then bounded by those files. Without
        it every queue may have to be looked at. A queue never loses its next offset. Returns how
        many files or queues gave something back, as far as that is known at once: a backend may go
        on in the background.
        """

    @abstractmethod
    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Have a queue without units continue at ``queue_offset``: all before it have expired.

        Minimum and maximum are that offset then. Durable after ``flush``.
        """

    @abstractmethod
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Remove every queue of exactly these topics; durable when it returns. Unknown: no error.

        May run beside ``put_batch``: the caller ensures that no unit of ``topics`` is put. Next
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

    # ---- about itself (any thread)

    @abstractmethod
    def total_size_bytes(self) -> int:
        """Return what the queues take on disk, real bytes (allocated blocks)."""

    @abstractmethod
    def check_files(self) -> Iterator[QueueFinding]:
        """Yield what is wrong in the backend's own files: sizes, names, keys, stored minima.

        Units themselves are compared with the log by the caller.
        """

    def read_through(self, progress: Progress = noop) -> None:
        """Read all that is stored once, where opening does not show whether it can be read.

        ``progress`` is called with how many entries and units were read.

        Raises:
            CorruptionError: something cannot be read; the sentence says what mends it.
            StoreIOError: the disk refused.
        """
        _ = progress

    def backends(self) -> Sequence["ConsumeQueueStore"]:
        """Return the stores that this one is made of: itself, unless it combines several."""
        return (self,)

    def locks(self) -> Sequence[CheckedLock]:
        """Return the locks that writes and reads of the queues take, for ``LockOrder.add``."""
        return ()

    def describe(self) -> dict[str, object]:
        """Return facts for ``info`` (engine, versions, folders), label → value."""
        return {}

    def lacking(self) -> str:
        """Return a sentence on what this backend lacks on this machine; empty: nothing."""
        return ""

    def stats(self) -> Sequence[QueueStat]:
        """Return numbers to watch; cheap, whatever the number of queues. Any thread."""
        return ()

    def written_bytes(self) -> Mapping[str, int]:
        """Return the bytes written to disk since the opening, by cause, as the backend counts them.

        Empty where it counts none. Takes about a millisecond. Any thread.
        """
        return {}

    @abstractmethod
    def close(self, *, flush: bool = True) -> None:
        """Flush if read-write, then release everything. A second call does nothing.

        Without ``flush`` nothing is written: what a killed process leaves stays as it is.
        Afterwards every other method raises ``StoreClosedError``.
        """
