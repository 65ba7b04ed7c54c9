"""OffsetTable: the family ``offset``, with a bounded cache of its entries.

Entries are read on first use, never in bulk at open: a million idle queues cost nothing. The cache
equals the database, except for the first live unit: it changes with the log, is found by reads, and
is only cached, since reading never writes.

Source: RocketMQ ``RocksDBConsumeQueueOffsetTable``.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine._append import AppendJob
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    KIND_MIN,
    LONGEST_PREFIX,
    OFFSET_ENTRY,
    OffsetEntry,
    max_entries_range,
    max_key,
    min_key,
    parse_max_entries,
    parse_offset_key,
    queue_prefix,
    topics_range,
)
from cqstore.cq_rocksdb.queues.state_cache import FIELDS, UNKNOWN, StateCache
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError, StoreClosedError
from cqstore.store.queue.queue_reads import QueueEnd
from cqstore.store.queue.units import MAX_UNITS, QueueKey

NO_UNIT = OffsetEntry(-1, -1)
"""``max`` entry of a queue that never had a unit."""
_SCAN_ENTRIES = 4_096
_KIND = slice(-8, -5)
"""Position of the kind in a key, which ``parse_offset_key`` checks."""
_WHOLE_FAMILY = (b"", b"\xff" * 8)  # lengths are positive, so no key begins with 0xff


class PlannedEnds(NamedTuple):
    """Rows of ``StateCache`` after a planned write."""

    prefixes: list[bytes]
    rows: NDArray[np.int64]
    renewed: bool
    """Whether one of the queues lost or regained units."""


class OffsetTable:
    """The ``max``, ``min`` and checkpoint entries. Any thread may read."""

    def __init__(self, engine: RocksEngine, hot_queues: int) -> None:
        """``hot_queues``: maximum number of cached queues."""
        self._engine = engine
        # Guards all fields below, except an unlocked first read of ``_checkpoint``.
        self.lock = CheckedLock("a read of the queue offsets")
        self._closed = False
        self._cache = StateCache(hot_queues)
        self._generation = 0  # increases when queues lose units: older results may be wrong
        self._checkpoint: int | None = None

    def close(self) -> None:
        """Refuse all later reads."""
        with self.lock.entry():
            self._closed = True

    def row(self, prefix: bytes) -> tuple[list[int], int]:
        """Return a queue's row of ``StateCache``, read on first use, and its generation.

        Raises:
            StoreClosedError: the store is closed.
        """
        with self.lock.entry():
            if self._closed:
                raise StoreClosedError("the queues are closed")
            row = self._cache.get(prefix)
            if row is None:
                row = [*self._read_last(self._engine.get(Family.OFFSET, max_key(prefix))), *NO_UNIT]
                if len(prefix) <= LONGEST_PREFIX:  # longer names cannot be queues
                    self._cache.put_one(prefix, row)
            return row, self._generation

    def last_offset(self, prefix: bytes) -> int:
        """Return the offset of a queue's last unit; -1: no unit.

        Raises:
            StoreClosedError: the store is closed.
        """
        with self.lock.entry():
            last = None if self._closed else self._cache.last_offset(prefix)
        return self.row(prefix)[0][1] if last is None else last

    def last(self, prefix: bytes) -> OffsetEntry:
        """Return a queue's last unit, or ``NO_UNIT``."""
        return OffsetEntry(*self.row(prefix)[0][:2])

    def rows(self, prefixes: list[bytes]) -> NDArray[np.int64]:
        """Return a row of ``StateCache`` for each queue; reads those not cached at once."""
        with self.lock.entry():
            rows, missing = self._cache.find(prefixes)
            if len(missing):
                rows[missing] = self._load([prefixes[at] for at in missing.tolist()])
        return rows

    def knows_ends(self, job: AppendJob) -> bool:
        """Pass the ends of its queues to a job; return whether any queue simply continues.

        Ends that are not cached are read, as in ``rows``.
        """
        with self.lock.entry():
            missing = job.find(self._cache)
            if missing:
                job.rest(self._load(missing))
        return job.follows()

    def batch_written(
        self, checkpoint: int, job: AppendJob | None = None, planned: PlannedEnds | None = None
    ) -> None:
        """Update the cache after the write of a job and a plan, and the checkpoint.

        Readers see the new ends of all queues of a batch, or of none.
        """
        with self.lock.entry():
            if job is not None:
                job.move(self._cache)
            if planned is not None:
                self._generation += planned.renewed
                self._cache.put(planned.prefixes, planned.rows)
            self._checkpoint = checkpoint

    def _load(self, prefixes: list[bytes]) -> NDArray[np.int64]:
        """Read ``max`` entries into the cache; under the lock, else an update could be lost."""
        rows = np.full((len(prefixes), FIELDS), UNKNOWN, np.int64)
        values = self._engine.multi_get(Family.OFFSET, [max_key(prefix) for prefix in prefixes])
        for at, value in enumerate(values):
            if value is not None:
                rows[at, :2] = self._read_last(value)
        self._cache.put(prefixes, rows)
        return rows

    def _read_last(self, value: bytes | None) -> OffsetEntry:
        """Return the last unit of a ``max`` entry, or ``NO_UNIT``.

        Raises:
            CorruptionError: the offset is too large for a further put.
        """
        if value is None or len(value) != OFFSET_ENTRY.size:
            return NO_UNIT
        last = OFFSET_ENTRY.unpack_from(value)
        if last.queue_offset >= MAX_UNITS:
            raise CorruptionError(
                "invalid max entry", expected=f"an offset below {MAX_UNITS}",
                got=last.queue_offset,
            )  # fmt: skip
        # Without a unit, the position in the entry is artificial.
        return last if last.queue_offset >= 0 else NO_UNIT

    def found_first(self, prefix: bytes, first: OffsetEntry, generation: int) -> None:
        """Cache a first unit found by a reader, unless queues have lost units in the meantime."""
        with self.lock.entry():
            if generation == self._generation:
                self._cache.set_first(prefix, *first)

    def forget(self, prefixes: Iterable[bytes]) -> None:
        """Drop these queues from the cache, after a deletion or a write of their entries."""
        with self.lock.entry():
            self._generation += 1
            for prefix in prefixes:
                self._cache.discard(prefix)

    def forget_all(self) -> None:
        """Clear the cache, after a cut of many queues or an interrupted write."""
        with self.lock.entry():
            self._generation += 1
            self._checkpoint = None
            self._cache.clear()

    def stored_min(self, prefix: bytes) -> OffsetEntry | None:
        """Read the ``min`` entry of a queue."""
        value = self._engine.get(Family.OFFSET, min_key(prefix))
        if value is None or len(value) != OFFSET_ENTRY.size:
            return None
        return OFFSET_ENTRY.unpack_from(value)

    def checkpoint(self) -> int:
        """Return the phy offset up to which all records are in the queues; 0: no entry."""
        known = self._checkpoint
        if known is None:
            with self.lock.entry():  # else a concurrent update would be overwritten
                value = self._engine.get(Family.OFFSET, CHECKPOINT_KEY) or b""
                whole = len(value) == CHECKPOINT_ENTRY.size
                known = CHECKPOINT_ENTRY.unpack_from(value).phy_offset if whole else 0
                self._checkpoint = known
        return known

    def raw_entries(
        self, bounds: tuple[bytes, bytes] = _WHOLE_FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield raw keys and values of a range, in key order.

        Bounded memory, and no iterator of the database is open while the caller works.
        """
        start, end = bounds
        while True:
            rows = self._engine.scan(Family.OFFSET, start, end, _SCAN_ENTRIES)
            yield from rows
            if len(rows) < _SCAN_ENTRIES:
                return
            start = rows[-1][0] + b"\0"

    def last_units(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[tuple[QueueKey, OffsetEntry]]:
        """Yield every queue (of ``topic``, after ``after``) with its ``max`` entry.

        ``prefix``: only topics with this prefix; at most two seeks per length of a topic's name.
        """
        ranges = [max_entries_range(topic)] if topic is not None else self._ranges(prefix)
        minimum = b"" if after is None else max_key(queue_prefix(*after)) + b"\0"
        for start, end in ranges:
            if minimum < end:
                rows = self.raw_entries((max(start, minimum), end))
                lasts = (
                    (key, value)
                    for key, value in rows
                    if key[_KIND] != KIND_MIN and len(value) == OFFSET_ENTRY.size
                )
                yield from parse_max_entries(lasts)

    def queues_estimate(self) -> int | None:
        """Return the number of queues with a ``max`` entry; ``None``: the database reports none.

        Exact if one scan reads all entries; else RocksDB's number of keys, times the share of
        ``max`` entries in the scan. RocksDB counts a key once per table that contains it.
        """
        rows = self._engine.scan(Family.OFFSET, *_WHOLE_FAMILY, _SCAN_ENTRIES)
        lasts = sum(key[_KIND] != KIND_MIN and len(row) == OFFSET_ENTRY.size for key, row in rows)
        if len(rows) < _SCAN_ENTRIES:
            return lasts
        keys = self._engine.property_value(Family.OFFSET, "rocksdb.estimate-num-keys")
        return None if keys is None else max(int(keys) * lasts // len(rows), lasts)

    def last_units_of(self, queues: Iterable[QueueKey]) -> Iterator[tuple[QueueKey, OffsetEntry]]:
        """Yield the ``max`` entries of these queues, or ``NO_UNIT``, bypassing the cache."""
        left = iter(queues)
        while block := list(islice(left, _SCAN_ENTRIES)):
            keys = [max_key(queue_prefix(*key)) for key in block]
            yield from zip(
                block,
                map(self._read_last, self._engine.multi_get(Family.OFFSET, keys)),
                strict=True,
            )

    def ends(self, queues: Iterable[QueueKey] | None) -> Iterator[QueueEnd]:
        """Yield these queues, ``None``: all, with the offsets after their last units."""
        found = self.last_units() if queues is None else self.last_units_of(queues)
        return ((queue, last.queue_offset + 1) for queue, last in found)

    def _ranges(self, prefix: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the ranges of topics that begin with ``prefix``: keys sort by length first."""
        if not prefix:
            yield _WHOLE_FAMILY
            return
        topic_bytes = len(prefix.encode())
        while True:
            start, end = topics_range(prefix, topic_bytes)
            yield start, end
            behind = self._engine.scan(Family.OFFSET, end, _WHOLE_FAMILY[1], 1)
            if not behind:
                return
            topic_bytes = max(topic_bytes + 1, parse_offset_key(behind[0][0]).topic_bytes)
