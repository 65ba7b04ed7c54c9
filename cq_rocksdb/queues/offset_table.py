"""OffsetTable: the family ``offset``, with a bounded cache of its entries.

Entries are read on first use, never in bulk at open: a million idle queues cost nothing. What the
cache says is what the database says; only the first live unit, which moves with the log, is found
out and kept here alone, since reading never writes.

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
    parse_offset_key,
    queue_prefix,
    topics_range,
)
from cqstore.cq_rocksdb.queues.state_cache import FIELDS, UNKNOWN, StateCache
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError, StoreClosedError
from cqstore.store.queue.units import MAX_UNITS, QueueKey

NO_UNIT = OffsetEntry(-1, -1)
"""``max`` of a queue that never had a unit."""
_SCAN_ENTRIES = 4_096
_KIND = slice(-8, -5)
"""Position of the kind in a key; ``parse_offset_key`` checks that it is one."""
_WHOLE_FAMILY = (b"", b"\xff" * 8)  # lengths are positive, so no key begins with 0xff


class PlannedEnds(NamedTuple):
    """Rows of ``StateCache`` as a planned write leaves them."""

    prefixes: list[bytes]
    rows: NDArray[np.int64]
    renewed: bool
    """A queue among them lost or regained units."""


class OffsetTable:
    """The ``max``, ``min`` and checkpoint entries. Any thread may read."""

    def __init__(self, engine: RocksEngine, hot_queues: int) -> None:
        """``hot_queues``: how many queues are kept in memory."""
        self._engine = engine
        # Guards all below but for a quick look at ``_checkpoint``.
        self.lock = CheckedLock("a read of the queue offsets")
        self._closed = False
        self._cache = StateCache(hot_queues)
        self._generation = 0  # rises when queues lose units: what was found out before may be wrong
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
                if len(prefix) <= LONGEST_PREFIX:  # else the name is a reader's invention
                    self._cache.put_one(prefix, row)
            return row, self._generation

    def last_offset(self, prefix: bytes) -> int:
        """Return the offset of a queue's last unit, -1 without one.

        Raises:
            StoreClosedError: the store is closed.
        """
        with self.lock.entry():
            last = None if self._closed else self._cache.last_offset(prefix)
        return self.row(prefix)[0][1] if last is None else last

    def last(self, prefix: bytes) -> OffsetEntry:
        """Return a queue's last unit, ``NO_UNIT`` without one."""
        return OffsetEntry(*self.row(prefix)[0][:2])

    def rows(self, prefixes: list[bytes]) -> NDArray[np.int64]:
        """Return a row of ``StateCache`` for each queue; those not cached in one read."""
        with self.lock.entry():
            rows, missing = self._cache.find(prefixes)
            if len(missing):
                rows[missing] = self._load([prefixes[at] for at in missing.tolist()])
        return rows

    def knows_ends(self, job: AppendJob) -> bool:
        """Give a job the known ends of its queues; return whether any queue simply continues.

        As ``rows``: what is not cached is read.
        """
        with self.lock.entry():
            missing = job.find(self._cache)
            if missing:
                job.rest(self._load(missing))
        return job.follows()

    def batch_written(
        self, checkpoint: int, job: AppendJob | None = None, planned: PlannedEnds | None = None
    ) -> None:
        """Take what a job and a plan have just written, and the checkpoint that went with it.

        Readers see the ends of all queues of a batch, or of none.
        """
        with self.lock.entry():
            if job is not None:
                job.move(self._cache)
            if planned is not None:
                self._generation += planned.renewed
                self._cache.put(planned.prefixes, planned.rows)
            self._checkpoint = checkpoint

    def _load(self, prefixes: list[bytes]) -> NDArray[np.int64]:
        """Read ``max`` entries into the cache; under the lock, or an update would be lost."""
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
            CorruptionError: the offset is too large: the next put could not store it.
        """
        if value is None or len(value) != OFFSET_ENTRY.size:
            return NO_UNIT
        last = OFFSET_ENTRY.unpack_from(value)
        if last.queue_offset >= MAX_UNITS:
            raise CorruptionError(
                "invalid max entry", expected=f"an offset below {MAX_UNITS}",
                got=last.queue_offset,
            )  # fmt: skip
        # Without a unit, whatever position the entry names is made up.
        return last if last.queue_offset >= 0 else NO_UNIT

    def found_first(self, prefix: bytes, first: OffsetEntry, generation: int) -> None:
        """Keep a first unit that a reader has found, unless queues lost units meanwhile."""
        with self.lock.entry():
            if generation == self._generation:
                self._cache.set_first(prefix, *first)

    def forget(self, prefixes: Iterable[bytes]) -> None:
        """Drop what is known of these queues, after they were deleted or their entries written."""
        with self.lock.entry():
            self._generation += 1
            for prefix in prefixes:
                self._cache.discard(prefix)

    def forget_all(self) -> None:
        """Drop everything, after many queues were cut, or an interrupted write."""
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
        """Return the log position up to which everything is in the queues; 0 without an entry."""
        known = self._checkpoint
        if known is None:
            with self.lock.entry():  # a write meanwhile would be forgotten
                value = self._engine.get(Family.OFFSET, CHECKPOINT_KEY) or b""
                whole = len(value) == CHECKPOINT_ENTRY.size
                known = CHECKPOINT_ENTRY.unpack_from(value).phy_offset if whole else 0
                self._checkpoint = known
        return known

    def raw_entries(
        self, bounds: tuple[bytes, bytes] = _WHOLE_FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a range as they are, in key order.

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

        ``prefix``: of topics that begin so; at most two seeks for each length of a topic's name.
        """
        ranges = [max_entries_range(topic)] if topic is not None else self._ranges(prefix)
        minimum = b"" if after is None else max_key(queue_prefix(*after)) + b"\0"
        for start, end in ranges:
            if minimum < end:
                for key, value in self.raw_entries((max(start, minimum), end)):
                    if key[_KIND] != KIND_MIN and len(value) == OFFSET_ENTRY.size:
                        yield parse_offset_key(key).queue, OFFSET_ENTRY.unpack_from(value)

    def queues_estimate(self) -> int | None:
        """Return how many queues have a ``max`` entry; ``None``: the database does not report it.

        Where one scan does not have all, RocksDB's number of keys, and of it the share that the
        scan found. It counts a key again for each table that has it.
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
