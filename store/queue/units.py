"""Units: what a consume queue holds, alone, in blocks (out) and in batches (in).

The 28 bytes of ``QueueUnit`` are RocksDB's value; a file queue stores their first 20. Blocks and
batches stay packed: a Python object per unit is made only for a caller that asks for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError
from cqstore.store.queue import _batch
from cqstore.store.record.layout import Buffer, Layout, Wire
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET


class QueueUnit(NamedTuple):
    """One unit as it is dispatched: where a message lies, what its tag hashes to, when it came."""

    phy_offset: Annotated[int, Wire("q", "byte position of the record in the commit log")]
    size: Annotated[int, Wire("i", "whole record, bytes")]
    tags_code: Annotated[int, Wire("q", "hash of the tag, or delivery time in ms")]
    store_timestamp: Annotated[int, Wire("q", "store time, ms since the epoch")]


QUEUE_UNIT = Layout(QueueUnit)
MAX_UNITS = MAX_QUEUE_OFFSET
PACKED_PREFIX = 20
"""Bytes of a packed unit that both backends have: ``phy_offset``, ``size``, ``tags_code``."""

EXT_ADDRESS_MAX = -(1 << 31) - 1
"""Tags codes up to this one, below every 32-bit hash, are addresses of what a backend keeps beside.

``ConsumeQueueStore.resolve_tags_code`` follows them.
"""


class QueueKey(NamedTuple):
    """One queue of one topic."""

    topic: str
    queue_id: int


class CqUnit(NamedTuple):
    """One unit as a reader sees it."""

    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int | None
    """``None`` where an extension address cannot be resolved; such a unit matches every filter."""
    batch_num: int = 1
    """Messages that the record holds; more than one only in batch queues."""


class BlockStop(Enum):
    """Why a block ended."""

    END = "end"
    """The queue has no further unit."""
    LIMIT = "limit"
    """As many units as asked for."""
    HOLE = "hole"
    """Units are missing behind the block, see ``UnitBlock.hole``."""


@dataclass(slots=True)  # not frozen: that would cost a pull a twentieth
class UnitBlock:
    """Consecutive units of one queue, packed.

    ``data`` holds ``count`` units of ``stride`` bytes (20, or 28 with store timestamps), the first
    of them at ``queue_offset``. The buffer is the caller's own: it stays valid after ``close``.
    """

    queue_offset: int
    data: Buffer
    stride: int
    stop: BlockStop
    hole: range | None = None
    """With ``BlockStop.HOLE``: the queue offsets that are missing behind the block."""

    @property
    def count(self) -> int:
        """Return how many units the block holds."""
        return len(self.data) // self.stride

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(phy_offset, size, tags_code)`` a unit, the cheapest way to walk a block."""
        return _ROWS[self.stride].iter_unpack(self.data)

    def columns(self, count: int = -1) -> NDArray[np.void]:
        """Return the units (the first ``count``) as rows with named fields, without a copy."""
        return np.frombuffer(self.data, UNIT_COLUMNS[self.stride], count)

    def units(self) -> Iterator[CqUnit]:
        """Yield the units as records."""
        for index, row in enumerate(self.rows()):
            yield CqUnit(self.queue_offset + index, *row)


UNIT_COLUMNS: dict[int, np.dtype[np.void]] = {
    PACKED_PREFIX: np.dtype(QUEUE_UNIT.dtype.descr[:-1]),
    QUEUE_UNIT.size: QUEUE_UNIT.dtype,
}
"""Stride of a block → the numpy type of a unit in it."""
_ROWS = {PACKED_PREFIX: Struct(">qiq"), QUEUE_UNIT.size: Struct(">qiq8x")}


_batch.bind_queue_key(QueueKey)


class UnitBatch(_batch.UnitColumns):
    """Units on their way into the queues, as columns, in dispatch (log) order.

    Unit *i* belongs to ``queues[queue_index[i]]`` at ``queue_offset[i]``; its 28 bytes are row *i*
    of ``units``. A view of a column keeps what it shows while the batch grows.
    ``end_phy_offset`` is the log position up to which everything has been dispatched once the batch
    is stored, also records that no queue holds. One thread adds.
    """

    __slots__ = ()

    def of_topics(self, wanted: Callable[[str], bool]) -> "UnitBatch":
        """Return the batch without the units of other topics; itself if it has none of those.

        Its ``end_phy_offset`` is the same.
        """
        return self.of_queues(np.array([wanted(queue.topic) for queue in self.queues], bool))

    def of_queues(self, keep: NDArray[np.bool_]) -> "UnitBatch":
        """Return the batch with the units of the queues to ``keep``; itself if that is all.

        Its ``end_phy_offset`` is the same.
        """
        return self if keep.all() else self._rows(keep[self._numbers()])

    def since(self, phy_offset: int) -> "UnitBatch":
        """Return the batch without the units whose records lie before ``phy_offset``.

        Its ``end_phy_offset`` is the same.
        """
        units = self._packed()
        phys = np.ascontiguousarray(units[:, :8]).view(">i8").ravel()
        return self._rows(phys >= phy_offset)

    def phy_offset_of(self, row: int) -> int:
        """Return where the record of a row begins."""
        return QUEUE_UNIT.unpack_from(memoryview(self.units), row * QUEUE_UNIT.size).phy_offset

    def first_of(self, number: int) -> int:
        """Return the first row of the queue of that number."""
        return int(np.argmax(self._numbers() == number))

    def begins(self, wanted: Callable[[QueueKey], bool]) -> int:
        """Return how many units of queues that are ``wanted`` are the first of an incarnation."""
        chosen = [number for number, queue in enumerate(self.queues) if wanted(queue)]
        if not chosen:
            return 0
        return int(np.count_nonzero(np.isin(self._numbers(), chosen) & (self._offsets() == 0)))

    def _rows(self, rows: NDArray[np.bool_]) -> "UnitBatch":
        """Return the units with a True in ``rows``, as a batch of their own."""
        chosen = UnitBatch()
        chosen.end_phy_offset = self.end_phy_offset
        index = self._numbers()[rows]
        used, numbers = np.unique(index, return_inverse=True)
        units = self._packed()
        chosen.take(
            [self.queues[at] for at in used.tolist()],
            numbers.astype(np.int32).tobytes(),
            self._offsets()[rows].tobytes(),
            units[rows].tobytes(),
        )
        return chosen

    def _numbers(self) -> NDArray[np.int32]:
        return np.frombuffer(memoryview(self.queue_index), np.int32)

    def _offsets(self) -> NDArray[np.int64]:
        return np.frombuffer(memoryview(self.queue_offset), np.int64)

    def _packed(self) -> NDArray[np.uint8]:
        return np.frombuffer(memoryview(self.units), np.uint8).reshape(-1, QUEUE_UNIT.size)

    def _check_offsets(self) -> None:
        """Refuse a queue offset that no queue can have.

        Raises:
            CorruptionError: there is one.
        """
        offsets = self._offsets()
        outside = np.flatnonzero((offsets < 0) | (offsets >= MAX_UNITS))
        if len(outside):
            row = int(outside[0])
            topic, queue_id = self.queues[self.queue_index[row]]
            raise CorruptionError(
                f"a record of queue {queue_id} of topic {topic!r} has an invalid queue offset",
                phy_offset=self.phy_offset_of(row),
                expected=f"0 to {MAX_UNITS - 1}",
                got=self.queue_offset[row],
            )

    def entries(self) -> Iterator[tuple[QueueKey, int, int, int]]:
        """Yield queue, queue offset, tags code and store timestamp of each unit, in their order."""
        units = np.frombuffer(memoryview(self.units), QUEUE_UNIT.dtype)
        return zip(
            map(self.queues.__getitem__, self._numbers().tolist()),
            self._offsets().tolist(),
            units["tags_code"].tolist(),
            units["store_timestamp"].tolist(),
            strict=True,
        )

    def runs(self) -> "UnitRuns":
        """Group the units by queue, keeping dispatch order within a queue.

        Raises:
            CorruptionError: a queue offset is impossible: no checksum covers a record's head.
        """
        index = self._numbers()
        order = np.argsort(index, kind="stable")
        index = index[order]
        self._check_offsets()
        offsets = self._offsets()[order]
        units = self._packed()[order]
        breaks = np.flatnonzero((np.diff(index) != 0) | (np.diff(offsets) != 1)) + 1
        starts = [0, *breaks.tolist()] if len(index) else []
        return UnitRuns(
            queues=[self.queues[i] for i in index[starts].tolist()],
            first_offsets=offsets[starts].tolist(),
            starts=starts,
            ends=[*starts[1:], len(index)] if len(index) else [],
            units=units,
        )


@dataclass(frozen=True, slots=True)
class UnitRuns:
    """The units of a batch, grouped: run *r* is rows ``starts[r]:ends[r]`` of ``units``.

    A run belongs to ``queues[r]``; its queue offsets count up from ``first_offsets[r]`` without a
    gap. A queue may have several runs (it started over within the batch), they follow each other in
    dispatch order.
    """

    queues: list[QueueKey]
    first_offsets: list[int]
    starts: list[int]
    ends: list[int]
    units: NDArray[np.uint8]
    """Shape (n, 28), C order: packed ``QueueUnit`` rows."""

    def __len__(self) -> int:
        return len(self.starts)
