"""Comparison of the backends of an open store, which may be written meanwhile; in this process."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.comparison import NO_LOCKS, Comparison, Locks
from cqstore.store.comparing.listed_queues import Sided
from cqstore.store.comparing.log_heads import Heads
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.errors import RefusedStoreError
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.bulk import NO_TIMESTAMP, UNIT_ROWS, UnitRows, UnitRun
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import LogView
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import EXT_ADDRESS_MAX, QUEUE_UNIT, QueueKey, UnitBlock


def compare_open(
    queues: ConsumeQueueStore,
    topic: str | None = None,
    queue_id: int | None = None,
    *,
    locks: Locks = NO_LOCKS,
    progress: Progress = noop,
) -> Compared:
    """Compare the backend that is read with the other one, for topics that both get.

    Compares all queues, those of ``topic``, or one of these. The holder of ``locks`` prevents
    batches, deletions and expiry. ``progress`` is called with phy offsets: the bytes of the records
    of the compared units.

    Raises:
        RefusedStoreError: only one backend is in use.
        StoreIOError: a read from disk failed.
    """
    reference, copy = two_backends(queues)
    given = queues.selections if isinstance(queues, CombinedConsumeQueueStore) else []

    def wants(key: QueueKey) -> bool:
        return queue_id in {None, key.queue_id} and all(selects(each, key.topic) for each in given)

    bounds = Bounds(max(reference.context.log.min_phy_offset(), 0), NO_END)
    return _compare(reference, copy, bounds, topic, wants, locks=locks, progress=progress)


def compare_stores(
    reference: ConsumeQueueStore,
    copy: ConsumeQueueStore,
    bounds: Bounds,
    *,
    progress: Progress = noop,
) -> Compared:
    """Compare all queues of two stores with one log; store times are read through ``copy``'s log.

    Raises:
        StoreIOError: a read from disk failed.
    """
    return _compare(reference, copy, bounds, progress=progress)


def _compare(
    reference: ConsumeQueueStore,
    copy: ConsumeQueueStore,
    bounds: Bounds,
    topic: str | None = None,
    wants: Callable[[QueueKey], bool] = lambda _: True,
    *,
    locks: Locks = NO_LOCKS,
    progress: Progress,
) -> Compared:
    """Compare two open backends, queue by queue, under their locks.

    ``wants`` selects the queues; BatchCQ queues are skipped and listed.
    """
    skipped: list[QueueKey] = []

    def wanted() -> Iterator[Sided]:
        for store, other in ((reference, None), (copy, reference)):
            for key in store.queues(topic):
                end = (other or store).queue(*key).max_offset()
                known = end if other else not end
                if known or not wants(key):
                    continue
                if QueueType.BATCH in {reference.queue_type(key.topic), copy.queue_type(key.topic)}:
                    skipped.append(key)
                else:
                    yield key, 0

    sides = _OpenSide(reference, progress), _OpenSide(copy, noop)
    log = _OpenLog(copy.context.log)
    comparison = Comparison(*sides, log, bounds, agreed=False, locks=locks)
    found = comparison.run(wanted())
    timeless = frozenset(side.store.name for side in sides if not side.has_timestamps)
    return Compared(reference.name, copy.name, found, timeless, skipped)


def two_backends(queues: ConsumeQueueStore) -> tuple[ConsumeQueueStore, ConsumeQueueStore]:
    """Return the two stores in use; the first one is read.

    Raises:
        RefusedStoreError: only one store is in use.
    """
    kept = queues.backends()
    if len(kept) == 1:
        raise RefusedStoreError(
            f"nothing to compare: the store keeps only the {kept[0].name} queues",
            path=queues.context.paths.root,
        )
    return kept[0], kept[1]


class _OpenSide:
    """A backend of an open store as a ``UnitSource``: up to the ends that were read before."""

    def __init__(self, store: ConsumeQueueStore, progress: Progress) -> None:
        self.store = store
        self.has_timestamps = False
        """Whether the units read so far have timestamps."""
        self._progress = progress
        self._compared = max(store.context.log.min_phy_offset(), 0)
        self._span = (0, 0)

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield nothing: the caller lists the queues of the stores."""
        _ = after, up_to
        yield from ()

    def next_offset(self, queue: QueueKey) -> int:
        """Read both ends, and keep them for ``runs``."""
        self._span = self.store.queue(*queue).ends()
        return self._span[1]

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Return 0: no comparison calls it."""
        _ = queue, queue_offset, rows
        return 0

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Yield the units of the store, skipping holes."""
        units = self.store.queue(*queue)
        for block in units.blocks(*self._span, max_units):
            rows = self._rows(units, block)
            yield UnitRun(block.queue_offset, rows)
            self._compared += int(rows["size"].sum())
            self._progress(self._compared)

    def _rows(self, queue: ConsumeQueue, block: UnitBlock) -> UnitRows:
        """Return the units of a block, with resolved extension addresses."""
        columns = block.columns()
        self.has_timestamps |= block.stride == QUEUE_UNIT.size
        rows = np.empty(len(columns), UNIT_ROWS)
        rows["store_timestamp"] = NO_TIMESTAMP
        for name in columns.dtype.names or ():
            rows[name] = columns[name]
        for row in np.flatnonzero(rows["tags_code"] <= EXT_ADDRESS_MAX).tolist():
            code = queue.resolve_tags_code(int(rows["tags_code"][row]))
            if code is not None:
                rows["tags_code"][row] = code
        return rows

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Return ``None``: the store has removed such rows."""
        _ = queue
        return None

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return True: the queue is being written."""
        _ = queue
        return True

    def close(self) -> None:
        """Do nothing: the caller owns the store."""


class _OpenLog:
    """The log of an open store as ``RecordHeads``, with store times only.

    The store time of a record that is missing, although it has not expired, is -1.
    """

    def __init__(self, log: LogView) -> None:
        self._log = log

    def read_heads(self, phy_offset: NDArray[np.int64], size: NDArray[np.int64]) -> Heads:
        """See ``RecordHeads``."""
        stamps = self._log.store_timestamps(phy_offset, size)
        known = (stamps >= 0) | (phy_offset >= self._log.min_phy_offset())
        unknown = np.zeros(len(stamps), np.int64)
        return Heads(known, stamps, unknown, unknown)
