"""OffsetTable: the family ``offset``, with a bounded cache of what it says of each queue.

Entries are read on first use, never in bulk at open: a million idle queues cost nothing. What the
cache says is what the database says; only the first live unit, which moves with the log, is found
out and kept here alone, since reading never writes.

Source: RocketMQ ``RocksDBConsumeQueueOffsetTable``.
"""

import threading
from collections.abc import Iterator
from itertools import islice

from cq_rocksdb.engine import Family, RocksEngine
from cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    KIND_MAX,
    OFFSET_ENTRY,
    OffsetEntry,
    OffsetKey,
    max_entries_range,
    max_key,
    min_key,
    parse_offset_key,
    queue_prefix,
)
from store.queue.units import QueueKey

NO_UNIT = OffsetEntry(-1, -1)
"""``max`` of a queue that never had a unit."""
CACHED_QUEUES = 200_000
_SCAN_ENTRIES = 4_096
_WHOLE_FAMILY = (b"", b"\xff" * 8)  # lengths are positive, so no key begins with 0xff


class QueueState:
    """What is known of one queue; ``last`` and ``first`` are replaced as a whole, never changed."""

    __slots__ = ("first", "last", "max_key", "prefix")

    def __init__(self, prefix: bytes, last: OffsetEntry) -> None:
        self.prefix = prefix
        self.max_key = max_key(prefix)
        self.last = last
        """The ``max`` entry, ``NO_UNIT`` without one."""
        self.first: OffsetEntry | None = None
        """The first live unit as it was last found, ``None`` if nobody asked yet."""

    @property
    def max_offset(self) -> int:
        """Return the queue offset behind the last unit."""
        return self.last.queue_offset + 1


class OffsetTable:
    """The ``max``, ``min`` and checkpoint entries. Any thread may read."""

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()  # orders loads and updates of _states
        self._states: dict[tuple[str, int], QueueState] = {}
        self._checkpoint: int | None = None

    def state(self, topic: str, queue_id: int) -> QueueState:
        """Return what is known of a queue, read from the database on first use."""
        state = self._states.get((topic, queue_id))
        return state or self._load([QueueKey(topic, queue_id)])[0]

    def states(self, queues: list[QueueKey]) -> list[QueueState]:
        """Return the states of ``queues``, in their order; those not cached in one read."""
        found = list(map(self._states.get, queues))
        missing = [queue for queue, state in zip(queues, found, strict=True) if state is None]
        if not missing:
            return [state for state in found if state is not None]
        loaded = dict(zip(missing, self._load(missing), strict=True))
        return [
            state if state is not None else loaded[queue]
            for queue, state in zip(queues, found, strict=True)
        ]

    def _load(self, queues: list[QueueKey]) -> list[QueueState]:
        states = [QueueState(queue_prefix(*queue), NO_UNIT) for queue in queues]
        with self._lock:  # else an update between read and insertion would be lost
            values = self._engine.multi_get(Family.OFFSET, [state.max_key for state in states])
            for state, value in zip(states, values, strict=True):
                if value is not None and len(value) == OFFSET_ENTRY.size:
                    last = OFFSET_ENTRY.unpack_from(value)
                    # Without a unit, whatever position the entry names is made up.
                    state.last = last if last.queue_offset >= 0 else NO_UNIT
            self._make_room()
            self._states.update(zip(queues, states, strict=True))
        return states

    def update(self, queues: list[QueueKey], states: list[QueueState]) -> None:
        """Take states that say what was just written; the writer calls this after the write."""
        with self._lock:
            self._make_room()
            self._states.update(zip(queues, states, strict=True))

    def forget(self, topic: str) -> None:
        """Drop what is known of the queues of ``topic``, after they were deleted."""
        with self._lock:
            for key in [key for key in self._states if key[0] == topic]:
                del self._states[key]

    def forget_all(self) -> None:
        """Drop everything but the checkpoint, after many queues were cut."""
        with self._lock:
            self._states.clear()

    def _make_room(self) -> None:
        if len(self._states) >= CACHED_QUEUES:
            for key in list(islice(self._states, CACHED_QUEUES // 4)):  # the oldest
                del self._states[key]

    def stored_min(self, state: QueueState) -> OffsetEntry | None:
        """Read the ``min`` entry of a queue."""
        value = self._engine.get(Family.OFFSET, min_key(state.prefix))
        if value is None or len(value) != OFFSET_ENTRY.size:
            return None
        return OFFSET_ENTRY.unpack_from(value)

    def checkpoint(self) -> int:
        """Return the log position up to which everything is in the queues; 0 without an entry."""
        if self._checkpoint is None:
            value = self._engine.get(Family.OFFSET, CHECKPOINT_KEY) or b""
            known = len(value) == CHECKPOINT_ENTRY.size
            self._checkpoint = CHECKPOINT_ENTRY.unpack_from(value).phy_offset if known else 0
        return self._checkpoint

    def checkpoint_written(self, phy_offset: int) -> None:
        """Take the checkpoint that was just written."""
        self._checkpoint = phy_offset

    def entries(
        self, bounds: tuple[bytes, bytes] = _WHOLE_FAMILY
    ) -> Iterator[tuple[OffsetKey, OffsetEntry]]:
        """Yield the entries of a range, in key order; values that are not 16 bytes are passed.

        Bounded memory, and no iterator of the database is open while the caller works.

        Raises:
            CorruptionError: a key does not parse.
        """
        for key, value in self.raw_entries(bounds):
            if len(value) == OFFSET_ENTRY.size:
                yield parse_offset_key(key), OFFSET_ENTRY.unpack_from(value)

    def raw_entries(
        self, bounds: tuple[bytes, bytes] = _WHOLE_FAMILY
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a range as they are."""
        start, end = bounds
        while True:
            rows = self._engine.scan(Family.OFFSET, start, end, _SCAN_ENTRIES)
            yield from rows
            if len(rows) < _SCAN_ENTRIES:
                return
            start = rows[-1][0] + b"\0"

    def every_state(self) -> Iterator[QueueState]:
        """Yield every queue as its ``max`` entry says, past the cache."""
        for queue, last in self.last_units():
            yield QueueState(queue_prefix(*queue), last)

    def last_units(
        self, topic: str | None = None, after: QueueKey | None = None
    ) -> Iterator[tuple[QueueKey, OffsetEntry]]:
        """Yield every queue (of ``topic``, behind ``after``) with its ``max`` entry."""
        start, end = _WHOLE_FAMILY if topic is None else max_entries_range(topic)
        if after is not None:
            start = max(start, max_key(queue_prefix(*after)) + b"\0")
        for key, entry in self.entries((start, end)):
            if key.kind == KIND_MAX:
                yield key.queue, entry
