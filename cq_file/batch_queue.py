"""BatchConsumeQueue: a queue whose units point to records of several messages.

A unit (46 bytes) contains the queue offset of its record's first message and the number of
messages, so units are found by bisection, not by position. Recovery cuts batch queues like simple
ones: no unit may point after the log's end.

Source: RocketMQ ``BatchConsumeQueue``.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from cqstore.cq_file.layout import BATCH_UNIT, BatchUnit
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.cq_file.recovery import NO_PHY, SCANNED_FILES
from cqstore.store.errors import os_errors, retryable
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import CqUnit

_UNIT = BATCH_UNIT.size
_BLOCK_UNITS = 512
_MAX_MESSAGES = LONG_MAX


class BatchConsumeQueue(QueueFiles):
    """One batch queue. ``_first`` and ``_end`` count units, everything public counts messages."""

    __slots__ = ("_end", "_first", "end_phy", "last_phy", "max_offset")

    def __init__(self, access: FileAccess, topic: str, queue_id: int, starts: list[int]) -> None:
        super().__init__(access, topic, queue_id, starts)
        self._first = starts[0] // _UNIT if starts else 0
        self._end = self._first
        self.max_offset = 0
        self.last_phy = NO_PHY
        self.end_phy = NO_PHY

    def recover(self, *, read_only: bool) -> None:
        """Scan the last files up to the first invalid row; read-write: cut the rest.

        Files after a missing file are not truncated: ``check`` reports the gap.

        Raises:
            StoreIOError: an I/O operation failed.
        """
        minimum = self._behind_gaps()
        with os_errors("recover a batch queue", self.folder):
            for index in range(max(len(self.starts) - SCANNED_FILES, minimum), -1, -1):
                if not self.starts:
                    break
                begin = self.starts[index] // _UNIT
                self._end = self._scan(begin)
                if self._end > begin:
                    break
            self._set_last()
            extra = self.end >= self._end * _UNIT + self.access.mapped_file_size
            if not read_only and (extra or next(self.data_behind(self._end * _UNIT), None)):
                self.cut(self._end * _UNIT)

    def _behind_gaps(self) -> int:
        """Return the index of the first file after which no file is missing."""
        size = self.access.mapped_file_size
        pairs = enumerate(pairwise(self.starts), 1)
        return max((at for at, (start, following) in pairs if following != start + size), default=0)

    def _scan(self, index: int) -> int:
        """Return the index of the first row from ``index`` on that is invalid or out of order."""
        previous = NO_PHY
        while True:
            rows = np.frombuffer(self.read(index * _UNIT, _BLOCK_UNITS * _UNIT), BATCH_UNIT.dtype)
            phy = rows["phy_offset"].astype(np.int64)
            good = (phy > np.concatenate(([previous], phy[:-1]))) & (rows["size"] > 0)
            base = rows["msg_base_offset"].astype(np.int64)
            messages = rows["batch_size"].astype(np.int64)
            good &= (base >= 0) & (messages > 0) & (base <= _MAX_MESSAGES - messages)
            count = len(rows) if good.all() else int(np.argmin(good))
            index += count
            if count < _BLOCK_UNITS:
                return index
            previous = int(phy[-1])

    def _set_last(self) -> None:
        if self._end == self._first:
            self.max_offset, self.last_phy, self.end_phy = 0, NO_PHY, NO_PHY
            return
        unit = self._unit(self._end - 1)
        self.last_phy, self.end_phy = unit.phy_offset, unit.phy_offset + unit.size
        self.max_offset = unit.msg_base_offset + unit.batch_size

    def _unit(self, index: int) -> BatchUnit:
        data = self.read(index * _UNIT, _UNIT)
        return BATCH_UNIT.unpack_from(data) if len(data) == _UNIT else BatchUnit(*[0] * 8)

    # ---- reading (any thread)

    def ends(self, min_phy_offset: int) -> tuple[int, int]:
        """Return the first message of the first record in a log that starts there, and the end."""

        def probe() -> tuple[int, int]:
            high = self.max_offset
            return min(self._min_offset(min_phy_offset), high), high

        return self.stable(probe)

    def _min_offset(self, min_phy_offset: int) -> int:
        index = self._bisect("phy_offset", min_phy_offset, self._first, self._end)
        return self.max_offset if index == self._end else self._unit(index).msg_base_offset

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield the units, starting with the one that contains ``queue_offset``."""
        index, end = self.stable(self._index_of, queue_offset)
        while index < end:
            data = self.stable(self._block, index, end)
            for unit in BATCH_UNIT.iter_unpack(data):
                yield CqUnit(
                    unit.msg_base_offset,
                    unit.phy_offset,
                    unit.size,
                    unit.tags_code,
                    unit.batch_size,
                )
            index = index + _BLOCK_UNITS if len(data) == _BLOCK_UNITS * _UNIT else end

    def _block(self, index: int, end: int) -> bytes:
        """Return the bytes of units from ``index`` on, without units that were just truncated."""
        count = min(_BLOCK_UNITS, min(end, self._end) - index)
        return self.read(index * _UNIT, count * _UNIT) if count > 0 else b""

    def unit_timestamp(self, queue_offset: int) -> int:
        """Return the store time in ms of the unit that contains ``queue_offset``; -1: no unit."""

        def probe() -> int:
            index, end = self._index_of(queue_offset)
            return self._unit(index).store_timestamp if index < end else -1

        return self.stable(probe)

    def logic_offset_of(self, queue_offset: int) -> int | None:
        """Return the logic offset of the unit that contains ``queue_offset``, or ``None``."""
        index, end = self.stable(self._index_of, queue_offset)
        return index * _UNIT if index < end else None

    def _index_of(self, queue_offset: int) -> tuple[int, int]:
        """Return the unit that contains ``queue_offset``, and the end; the end twice if none."""
        end = self._end
        if not 0 <= queue_offset < self.max_offset:
            return end, end
        index = self._bisect("msg_base_offset", queue_offset + 1, self._first, end) - 1
        return (index, end) if index >= self._first else (end, end)

    def _bisect(self, field: str, value: int, low: int, high: int) -> int:
        """Return the first unit in [low, high) whose ``field`` is at least ``value``."""
        while low < high:
            middle = (low + high) // 2
            if getattr(self._unit(middle), field) < value:
                low = middle + 1
            else:
                high = middle
        return low

    def offset_by_time(self, timestamp: int, boundary: BoundaryType, min_phy_offset: int) -> int:
        """Return the first message of the unit for ``timestamp``, found like RocketMQ does.

        Only the newest file that begins at or before ``timestamp`` is searched. If its last unit
        is not later than ``timestamp``, the result is that unit; else the first unit at or after
        ``timestamp``, for UPPER the last one with exactly that time. The result is at least the
        minimum; without such a file, it is the minimum.
        """

        def probe() -> int:
            low, high = self._file_by_time(timestamp)
            minimum = self._min_offset(min_phy_offset)
            if low >= high:
                return minimum
            if timestamp >= self._unit(high - 1).store_timestamp:
                index = high - 1
            else:
                index = self._bisect("store_timestamp", timestamp, low, high)
                behind = self._bisect("store_timestamp", timestamp + 1, low, high)
                if boundary is BoundaryType.UPPER and behind > index:
                    index = behind - 1
            found = min(self._unit(index).msg_base_offset, self.max_offset)  # if out of order
            return max(found, minimum)

        return self.stable(probe)

    def _file_by_time(self, timestamp: int) -> tuple[int, int]:
        size = self.access.mapped_file_size
        for start in reversed(self.starts):
            low, high = start // _UNIT, min((start + size) // _UNIT, self._end)
            if low < high and self._unit(low).store_timestamp <= timestamp:
                return low, high
        return 0, 0

    # ---- writing (one thread)

    def put(self, units: Iterable[BatchUnit]) -> tuple[range, int] | None:
        """Append units, in log order; units of records up to the last one are known, and skipped.

        A unit may begin beyond the end: RocketMQ assigns offsets to plain messages, which have no
        unit. A unit that begins before the end starts a new incarnation of the queue.

        Returns:
            The offsets replaced by a new incarnation of the queue, and the phy offset of its first
            record; ``None``: none began.

        Raises:
            RetryableDiskFullError: the disk is full; the same units can be put again.
            StoreIOError: an I/O operation failed; the queue must be opened again.
        """
        restart = None
        run: list[BatchUnit] = []
        known, end = self.last_phy, self.max_offset
        for unit in units:
            if unit.phy_offset <= known:
                continue
            if unit.msg_base_offset < end:
                self._append(run)
                run = []
                restart = self._begin_again(unit.msg_base_offset), unit.phy_offset
            run.append(unit)
            known, end = unit.phy_offset, unit.msg_base_offset + unit.batch_size
        self._append(run)
        return restart

    def _append(self, units: list[BatchUnit]) -> None:
        """Write units after the last one, then show them to readers."""
        if not units:
            return
        with retryable():
            self.write(self._end * _UNIT, b"".join(BATCH_UNIT.pack(unit) for unit in units))
        last = units[-1]
        self._end += len(units)
        self.last_phy, self.end_phy = last.phy_offset, last.phy_offset + last.size
        self.max_offset = last.msg_base_offset + last.batch_size  # last: readers compare with it

    def _begin_again(self, queue_offset: int) -> range:
        """Drop the units of messages from ``queue_offset`` on; return their queue offsets."""
        end = self.max_offset
        index = self._bisect("msg_base_offset", queue_offset, self._first, self._end)
        if index > self._first:
            before = self._unit(index - 1)
            index -= before.msg_base_offset + before.batch_size > queue_offset
        dropped = range(self._unit(index).msg_base_offset, end)
        self._cut_to(index)
        return dropped

    def _cut_to(self, index: int, *, read_only: bool = False) -> None:
        """Drop the units from ``index`` on, for readers first; read-only: only for readers."""
        self._end = index
        self.generation += 1
        self._set_last()
        if not read_only:
            self.cut(index * _UNIT)

    # ---- cutting (one thread)

    def abandon(self) -> list[str]:
        """Make the queue empty for its readers, before its folder is deleted; return its files."""
        self.max_offset = 0
        self._end = self._first
        return super().abandon()

    def truncate_dirty(self, phy_offset: int, *, read_only: bool) -> bool:
        """Remove units of records at or after ``phy_offset``; return whether there were any."""
        if self.last_phy < phy_offset:
            return False
        index = self._bisect("phy_offset", phy_offset, self._first, self._end)
        self._cut_to(index, read_only=read_only)
        return True

    def clean_expired(self, min_phy_offset: int) -> int:
        """Remove leading files whose last record has expired; the last file always stays."""
        count = 0
        for start in self.starts[:-1]:
            last = (start + self.access.mapped_file_size) // _UNIT - 1
            if self._unit(last).phy_offset >= min_phy_offset:
                break
            count += 1
        if count:
            self.begin_with(self.starts[count])
            self.generation += 1
            self.remove_leading(count)
        return count

    def begin_with(self, start: int) -> None:
        """Record that units before the file at ``start`` have expired."""
        self._first = start // _UNIT
