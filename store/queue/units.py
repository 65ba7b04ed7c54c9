"""Units: the entries of a consume queue, single, in blocks (read) and in batches (written).

The 28 bytes of ``QueueUnit`` are RocksDB's value; a file queue stores the first 20. Blocks and
batches stay packed: a Python object per unit is created only on request.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError
from cqstore.store.queue import _batch
from cqstore.store.record.layout import Buffer, Layout, Wire
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET


class QueueUnit(NamedTuple):
    """One dispatched unit: position and size of a message, tags code, and store time."""

    phy_offset: Annotated[int, Wire("q", "byte position of the record in the commit log")]
    size: Annotated[int, Wire("i", "whole record, bytes")]
    tags_code: Annotated[int, Wire("q", "hash of the tag, or delivery time in ms")]
    store_timestamp: Annotated[int, Wire("q", "store time, ms since the epoch")]


QUEUE_UNIT = Layout(QueueUnit)
MAX_UNITS = MAX_QUEUE_OFFSET
PACKED_PREFIX = 20
"""Bytes of a packed unit in both backends: ``phy_offset``, ``size``, ``tags_code``."""

EXT_ADDRESS_MAX = -(1 << 31) - 1
"""Tags codes up to this one, below every 32-bit hash, are addresses of extension data.

``ConsumeQueueStore.resolve_tags_code`` resolves them.
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
    """``None`` if an extension address cannot be resolved; such a unit matches every filter."""
    batch_num: int = 1
    """Number of messages in the record; more than one only in batch queues."""


class BlockStop(Enum):
    """Reasons why a block ended."""

    END = "end"
    """The queue has no further unit."""
    LIMIT = "limit"
    """The block has as many units as requested."""
    HOLE = "hole"
    """Units are missing after the block, see ``UnitBlock.hole``."""


@dataclass(slots=True)  # not frozen: a pull would take 5 % longer
class UnitBlock:
    """Consecutive units of one queue, packed.

    ``data`` has ``count`` units of ``stride`` bytes (20, or 28 with store timestamps), the first
    one at ``queue_offset``. The caller owns the buffer: it stays valid after ``close``.
    """

    queue_offset: int
    data: Buffer
    stride: int
    stop: BlockStop
    hole: range | None = None
    """With ``BlockStop.HOLE``: the queue offsets that are missing after the block."""

    @property
    def count(self) -> int:
        """Return the number of units in the block."""
        return len(self.data) // self.stride

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(phy_offset, size, tags_code)`` per unit, the cheapest iteration over a block."""
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
"""Stride of a block → numpy type of a unit in it."""
_RADIX_SORTED = 1 << 16
"""Numbers below this one have 16 bits, which numpy sorts about ten times as fast."""
_ROWS = {PACKED_PREFIX: Struct(">qiq"), QUEUE_UNIT.size: Struct(">qiq8x")}


_batch.bind_queue_key(QueueKey)


class UnitBatch(_batch.UnitColumns):
    """Units that are being added to queues, as columns, in dispatch (log) order.

    Unit *i* belongs to ``queues[queue_index[i]]`` at ``queue_offset[i]``; its 28 bytes are row *i*
    of ``units``. A view of a column keeps its content while the batch grows. ``end_phy_offset`` is
    the log position up to which everything is dispatched once the batch is stored, including
    records that no queue contains. One thread adds.
    """

    __slots__ = ("batch_sizes",)

    def __init__(self) -> None:
        self.batch_sizes: dict[int, int] = {}
        """Phy offset of a record of a batch queue → number of its messages."""

    def extend(self, other: _batch.UnitColumns) -> None:
        """Append all units of ``other``, or none; ``end_phy_offset`` becomes that of ``other``."""
        if isinstance(other, UnitBatch):
            self.batch_sizes.update(other.batch_sizes)
        super().extend(other)

    def following(self, next_offsets: list[int]) -> tuple[list[int], int]:
        """Return the next offsets, and the row with a gap, see ``UnitColumns.following``.

        A record of a batch queue has as many offsets as messages.
        """
        if not self.batch_sizes:
            return super().following(next_offsets)
        behind = list(next_offsets)
        rows = zip(self._numbers().tolist(), self._offsets().tolist(), self._phys(), strict=True)
        for row, (number, offset, phy_offset) in enumerate(rows):
            if 0 < behind[number] < offset:
                return behind, row
            behind[number] = offset + self.batch_sizes.get(phy_offset, 1)
        return behind, -1

    def batch_queues(self) -> set[QueueKey]:
        """Return the queues with records of ``batch_sizes``."""
        if not self.batch_sizes:
            return set()
        rows = zip(self._numbers().tolist(), self._phys(), strict=True)
        return {self.queues[number] for number, phy in rows if phy in self.batch_sizes}

    def of_topics(self, wanted: Callable[[str], bool]) -> "UnitBatch":
        """Return the batch without units of other topics; itself if it has none of those.

        Its ``end_phy_offset`` is the same.
        """
        return self.of_queues(np.array([wanted(queue.topic) for queue in self.queues], bool))

    def of_queues(self, keep: NDArray[np.bool_]) -> "UnitBatch":
        """Return the batch with the units of the queues to ``keep``; itself if that is all.

        Its ``end_phy_offset`` is the same.
        """
        return self if keep.all() else self._rows(keep[self._numbers()])

    def since(self, phy_offset: int) -> "UnitBatch":
        """Return the batch without the units whose records are before ``phy_offset``.

        Its ``end_phy_offset`` is the same.
        """
        return self._rows(phy_offsets(self._packed()) >= phy_offset)

    def phy_offset_of(self, row: int) -> int:
        """Return the phy offset of a row's record."""
        return QUEUE_UNIT.unpack_from(memoryview(self.units), row * QUEUE_UNIT.size).phy_offset

    def first_of(self, number: int) -> int:
        """Return the first row of the queue with this number."""
        return int(np.argmax(self._numbers() == number))

    def begins(self, wanted: Callable[[QueueKey], bool]) -> int:
        """Return how many units of ``wanted`` queues are the first of an incarnation."""
        chosen = [number for number, queue in enumerate(self.queues) if wanted(queue)]
        if not chosen:
            return 0
        return int(np.count_nonzero(np.isin(self._numbers(), chosen) & (self._offsets() == 0)))

    def _rows(self, rows: NDArray[np.bool_]) -> "UnitBatch":
        """Return the units with a True in ``rows``, as a new batch."""
        chosen = UnitBatch()
        chosen.end_phy_offset = self.end_phy_offset
        chosen.batch_sizes = self.batch_sizes
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

    def _phys(self) -> list[int]:
        found: list[int] = phy_offsets(self._packed()).tolist()
        return found

    def _packed(self) -> NDArray[np.uint8]:
        return np.frombuffer(memoryview(self.units), np.uint8).reshape(-1, QUEUE_UNIT.size)

    def _check_offsets(self) -> None:
        """Refuse a queue offset that is invalid for any queue.

        Raises:
            CorruptionError: a queue offset is invalid.
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
        """Yield queue, queue offset, tags code and store timestamp of each unit, in order."""
        units = np.frombuffer(memoryview(self.units), QUEUE_UNIT.dtype)
        return zip(
            map(self.queues.__getitem__, self._numbers().tolist()),
            self._offsets().tolist(),
            units["tags_code"].tolist(),
            units["store_timestamp"].tolist(),
            strict=True,
        )

    def runs(self, key_order: Callable[[QueueKey], Any] | None = None) -> "UnitRuns":
        """Group the units by queue, keeping dispatch order within a queue.

        Queues are sorted by ``key_order``; without it they keep their order in the batch.

        Raises:
            CorruptionError: a queue offset is invalid: no checksum covers a record's head.
        """
        queues, index = self.queues, self._numbers()
        if key_order is not None:
            ranked = sorted(range(len(queues)), key=lambda number: key_order(queues[number]))
            index = np.argsort(ranked).astype(np.int32)[index]
            queues = [queues[number] for number in ranked]
        if len(queues) <= _RADIX_SORTED:
            index = index.astype(np.uint16)
        order = np.argsort(index, kind="stable")
        index = index[order]
        self._check_offsets()
        offsets = self._offsets()[order]
        units = self._packed()[order]
        phys = phy_offsets(units)
        follows = (index[1:] == index[:-1]) & (np.diff(offsets) == 1) & (phys[1:] > phys[:-1])
        breaks = np.flatnonzero(~follows) + 1
        starts = [0, *breaks.tolist()] if len(index) else []
        return UnitRuns(
            queues=[queues[i] for i in index[starts].tolist()],
            first_offsets=offsets[starts].tolist(),
            starts=starts,
            ends=[*starts[1:], len(index)] if len(index) else [],
            units=units,
            phys=phys,
        )


def phy_offsets(units: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the phy offset of each row of packed units, shape (n, 20 or 28)."""
    return np.ascontiguousarray(units[:, :8]).view(">i8").ravel().astype(np.int64)


@dataclass(frozen=True, slots=True)
class UnitRuns:
    """The units of a batch, grouped: run *r* is rows ``starts[r]:ends[r]`` of ``units``.

    A run belongs to ``queues[r]``; its queue offsets start at ``first_offsets[r]``, without gaps,
    and its records are in log order. A queue may have several runs, in dispatch order (it started
    over within the batch).
    """

    queues: list[QueueKey]
    first_offsets: list[int]
    starts: list[int]
    ends: list[int]
    units: NDArray[np.uint8]
    """Shape (n, 28), C order: packed ``QueueUnit`` rows."""
    phys: NDArray[np.int64]
    """The phy offset of each row."""

    def __len__(self) -> int:
        return len(self.starts)
