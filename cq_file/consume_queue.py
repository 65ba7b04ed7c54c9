"""FileConsumeQueue: the units of one topic and queue id.

Row *n* of the files (20 bytes at logic offset 20·n) is the unit with queue offset *n*. Below
``first_offset`` there are pre-blanks or nothing; from ``max_offset`` on there are zeros. Changes
become visible to readers in this order: append writes, then raises ``max_offset``; a cut lowers
``max_offset``, raises ``generation``, then writes zeros.

Source: RocketMQ ``ConsumeQueue``.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cqstore.cq_file import _table
from cqstore.cq_file.layout import FILE_UNIT, NO_UNIT, PRE_BLANK, is_unit
from cqstore.cq_file.listing import ShortEnd
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.cq_file.recovery import NO_PHY, find_end, record_end
from cqstore.store.errors import QueueGapError, RefusedStoreError, os_errors, queue_gap, retryable
from cqstore.store.log.log_files import newest_files_missing
from cqstore.store.queue.consume_queue import PulledUnits, no_units
from cqstore.store.queue.units import BlockStop, UnitBlock

_UNIT = FILE_UNIT.size
_UNPACK = FILE_UNIT.struct.unpack_from  # ordinary tuples, which are faster
_PHY_SIZE = 8
_NEVER = (-1, 0, 0)


class FileConsumeQueue(QueueFiles, _table.QueueEnds):
    """One simple queue in files. One thread writes, any thread reads."""

    __slots__ = ()

    def __init__(self, access: FileAccess, topic: str, queue_id: int, starts: list[int]) -> None:
        super().__init__(access, topic, queue_id, starts)
        self.first_offset = 0
        self.max_offset = 0
        self.last_phy = NO_PHY
        self.end_phy = NO_PHY
        self.known_path = (-1, "")
        self.known_min = _NEVER  # set in one step, so never torn
        self._tail_path = None  # file of the next unit; None: unknown, or no file
        self._tail_position = 0
        self._unproven = False  # the last unit may be torn

    # ---- opening

    def recover(
        self, *, last_exit_ok: bool, safe_phy_offset: int, max_phy_offset: int, read_only: bool,
        may_lack_files: bool = False,
    ) -> bool:  # fmt: skip
        """Find the end of the queue. Read-write: remove everything after it.

        Return whether it has a hole. ``may_lack_files``: files of the log may not be in sight.

        Raises:
            StoreIOError: an I/O operation failed.
            RefusedStoreError: such files are missing; nothing was changed.
        """
        with os_errors("recover a queue", self.folder):
            end = find_end(
                self,
                last_exit_ok=last_exit_ok,
                safe_phy_offset=safe_phy_offset,
                max_phy_offset=max_phy_offset,
            )
            self.first_offset, self.max_offset = end.first_offset, end.max_offset
            self.last_phy, self.end_phy = end.last_phy, end.end_phy
            if may_lack_files and end.lost_phy != NO_PHY:
                raise RefusedStoreError(
                    f"{newest_files_missing(max_phy_offset, end.lost_phy)}. If the files are"
                    " lost, move the queues away, and run cqstore rebuild",
                    path=Path(self.folder), phy_offset=end.lost_phy,
                )  # fmt: skip
            # A file of only zeros after the end is removed, too: RocketMQ would count its first
            # row as a unit (``ConsumeQueue.truncateDirtyLogicFiles``).
            if not read_only and (end.dirty or self.end >= end.max_offset * _UNIT + self._size):
                self.cut(end.max_offset * _UNIT)
        # After a power cut, only the first part of an unsynced unit may be on disk, up to the end
        # of a page. Its tags code, whose rest is zero, looks valid. The replay has the right one.
        self._unproven = not last_exit_ok
        return end.has_hole

    def set_short_end(self, end: ShortEnd, min_phy_offset: int) -> None:
        """Set the end that was found when the queue was listed; ``accept_end`` accepts it.

        ``min_phy_offset``: the minimum of the log for which ``end.live`` was counted.
        """
        first = end.start // _UNIT
        self.restore(first, first + end.units, end.last_phy, end.end_phy)
        self.known_min = (self.generation, min_phy_offset, first + end.live)

    def forget_short_end(self) -> None:
        """Undo ``set_short_end``: ``recover`` has to find the end."""
        self.restore(0, 0, NO_PHY, NO_PHY)
        self.known_min = _NEVER

    def accept_end(self, *, last_exit_ok: bool, max_phy_offset: int) -> bool:
        """Accept the end that ``set_short_end`` has set, instead of calling ``recover``.

        Return whether there is one, and no unit leads to or after the end of the log.
        """
        if not 0 <= self.last_phy < max_phy_offset:
            return False
        self._unproven = not last_exit_ok  # as in ``recover``
        return True

    def restore(self, first_offset: int, max_offset: int, last_phy: int, end_phy: int) -> None:
        """Set the end that the last clean stop saved, instead of calling ``recover``."""
        self.first_offset, self.max_offset = first_offset, max_offset
        self.last_phy, self.end_phy = last_phy, end_phy

    @property
    def _size(self) -> int:
        return self.access.mapped_file_size

    # ---- reading (any thread)

    def read_block(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Return units from ``queue_offset`` on, see ``ConsumeQueue.read_units``."""
        return self.stable(self._read_block, queue_offset, max_count)

    def pull(self, queue_offset: int, max_count: int, min_phy_offset: int) -> PulledUnits:
        """Return ends and units, see ``ConsumeQueue.pull``."""
        return self.stable(self._pull, queue_offset, max_count, min_phy_offset)

    def _pull(self, queue_offset: int, max_count: int, min_phy_offset: int) -> PulledUnits:
        low, high = self._ends(min_phy_offset)
        if low <= queue_offset < high:
            return PulledUnits(low, high, self._read_block(queue_offset, max_count, high))
        return PulledUnits(low, high, no_units(queue_offset, _UNIT))

    def _read_block(self, queue_offset: int, max_count: int, end: int | None = None) -> UnitBlock:
        """Read units up to ``end``, or to the first hole; see ``ConsumeQueue.read_units``."""
        end = self.max_offset if end is None else end
        first = self.first_offset
        if queue_offset >= end or queue_offset < 0 or max_count <= 0:
            stop = BlockStop.LIMIT if max_count <= 0 else BlockStop.END
            return UnitBlock(queue_offset, b"", _UNIT, stop)
        if queue_offset < first:
            hole = range(queue_offset, first)
            return UnitBlock(queue_offset, b"", _UNIT, BlockStop.HOLE, hole)
        count = min(max_count, end - queue_offset)
        data = self.read(queue_offset * _UNIT, count * _UNIT)
        # Twenty zeros in a row cannot span two units: every size has a nonzero byte.
        if len(data) != count * _UNIT or NO_UNIT in data:
            return self._block_to_hole(queue_offset, data, count, end)
        stop = BlockStop.LIMIT if count == max_count else BlockStop.END
        return UnitBlock(queue_offset, data, _UNIT, stop)

    def _block_to_hole(self, queue_offset: int, data: bytes, count: int, end: int) -> UnitBlock:
        rows = np.frombuffer(data, FILE_UNIT.dtype)
        bad = np.flatnonzero(~is_unit(rows["phy_offset"], rows["size"]))
        kept = int(bad[0]) if len(bad) else len(rows)
        hole = range(queue_offset + kept, self._next_unit(queue_offset + kept, end))
        return UnitBlock(queue_offset, data[: kept * _UNIT], _UNIT, BlockStop.HOLE, hole)

    def _next_unit(self, queue_offset: int, end: int) -> int:
        """Return the first offset from ``queue_offset`` on with a unit; ``end``: there is none."""
        per_file = self._size // _UNIT
        while (held := self.next_held(queue_offset * _UNIT)) is not None and held < end * _UNIT:
            queue_offset = held // _UNIT
            room = per_file - queue_offset % per_file
            data = self.read(queue_offset * _UNIT, min(room, end - queue_offset) * _UNIT)
            rows = np.frombuffer(data, FILE_UNIT.dtype)
            good = np.flatnonzero(is_unit(rows["phy_offset"], rows["size"]))
            if len(good):
                return queue_offset + int(good[0])
            queue_offset += room
        return end

    def path_of(self, start: int) -> str:
        """Return the path of the file that starts at ``start``, and cache it."""
        path = self.path(start)
        self.known_path = (start, path)
        return path

    def logic_offset_of(self, queue_offset: int) -> int:
        """Return the logic offset of the unit at ``queue_offset``, whether or not it exists."""
        return queue_offset * _UNIT

    def unit_at(self, queue_offset: int) -> tuple[int, int] | None:
        """Return phy offset and size of one unit, or ``None`` if it does not exist."""
        if not self.first_offset <= queue_offset < self.max_offset:
            return None
        data = self.stable(self.read, queue_offset * _UNIT, _UNIT)
        if len(data) != _UNIT:
            return None
        unit = FILE_UNIT.unpack_from(data)
        return (unit.phy_offset, unit.size) if unit.size > 0 and unit.phy_offset >= 0 else None

    def first_unit(self, queue_offset: int) -> int:
        """Return the first offset from ``queue_offset`` on with a unit, or the end."""
        return self.stable(self._next_unit, queue_offset, self.max_offset)

    def ends(self, min_phy_offset: int) -> tuple[int, int]:
        """Return the first offset whose record is in a log that starts there, and the end."""
        return self.stable(self._ends, min_phy_offset)

    def _ends(self, min_phy_offset: int) -> tuple[int, int]:
        """Return minimum and maximum; the minimum is cached by generation and log's minimum."""
        high = self.max_offset
        if min_phy_offset <= 0:
            low = self.first_offset  # nothing can have expired: no file is opened
        else:
            known = self.known_min
            if known[0] == self.generation and known[1] == min_phy_offset:
                low = known[2]
            else:
                low = self._find_min(min_phy_offset)
        return (low if low < high else high), high  # faster than ``min``

    def _find_min(self, min_phy_offset: int) -> int:
        generation = self.generation
        found = self.first_at_or_behind(min_phy_offset)
        self.known_min = (generation, min_phy_offset, found)
        return found

    def first_at_or_behind(
        self, phy_offset: int, phy_at: Callable[[int], int] | None = None
    ) -> int:
        """Return the first offset whose record is at or after ``phy_offset``, or the end."""
        phy_at = phy_at or self._phy_at
        low, high = self.first_offset, self.max_offset
        if low < high and phy_at(low) >= phy_offset:
            return low
        while low < high:
            middle = (low + high) // 2
            if phy_at(middle) < phy_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _phy_at(self, queue_offset: int) -> int:
        """Return the phy offset of a unit; a hole has that of the unit after it."""
        if (phy := self._stored_phy(queue_offset)) > 0:
            return phy
        end = self.max_offset
        held = self._next_unit(queue_offset, end)
        return self._stored_phy(held) if held < end else self.last_phy + 1

    def _stored_phy(self, queue_offset: int) -> int:
        data = self.read(queue_offset * _UNIT, _PHY_SIZE)
        return int.from_bytes(data, "big", signed=True) if data else NO_PHY

    # ---- writing (one thread)

    def put(self, queue_offset: int, data: bytes, min_phy_offset: int) -> tuple[range, int] | None:
        """Store units from ``queue_offset`` on, see ``ConsumeQueueStore.put_batch``.

        Args:
            queue_offset: queue offset of the first unit.
            data: the units, 20 bytes each, with increasing phy offsets.
            min_phy_offset: the log's minimum; units below it have expired.

        Returns:
            The offsets replaced by a new incarnation of the queue, and the phy offset of its first
            record; ``None``: none began.

        Raises:
            QueueGapError: units are missing before ``queue_offset``.
            StoreIOError: an I/O operation failed; the queue must be opened again.
        """
        last_phy, size, _ = _UNPACK(data, len(data) - _UNIT)
        if last_phy < self.last_phy:
            return None  # a replay: all units are known
        phy_offset = _UNPACK(data)[0]
        if phy_offset <= self.last_phy:
            phys = np.frombuffer(data, FILE_UNIT.dtype)["phy_offset"]
            repeats = int(np.searchsorted(phys, self.last_phy, side="right"))
            if self._unproven and phys[repeats - 1] == self.last_phy:
                self._write_last(queue_offset + repeats - 1, data[(repeats - 1) * _UNIT :][:_UNIT])
            if repeats == len(phys):
                return None
            queue_offset += repeats
            data, phy_offset = data[repeats * _UNIT :], int(phys[repeats])
        end_phy = last_phy + size
        if queue_offset == self.max_offset:
            self.append(data, last_phy, end_phy)
        elif self.last_phy == NO_PHY:
            self._begin(queue_offset, data, last_phy, end_phy)
        elif queue_offset > self.max_offset:
            if self.last_phy >= min_phy_offset:
                raise self._gap(queue_offset, phy_offset)
            self._begin(queue_offset, data, last_phy, end_phy)
        else:
            return self._begin_within(queue_offset, data, last_phy, end_phy), phy_offset
        return None

    def _begin_within(self, queue_offset: int, data: bytes, last_phy: int, end_phy: int) -> range:
        """Begin a new incarnation at an existing offset; return the replaced offsets."""
        dropped = range(max(queue_offset, self.first_offset), self.max_offset)
        if queue_offset <= self.first_offset:
            self._begin(queue_offset, data, last_phy, end_phy)
        else:
            self.truncate(queue_offset)
            self.append(data, last_phy, end_phy)
        return dropped

    def _write_last(self, queue_offset: int, unit: bytes) -> None:
        """Write the last unit again, because a crash may have left it incomplete."""
        if queue_offset == self.max_offset - 1:
            self.write(queue_offset * _UNIT, unit)
            self._unproven = False

    def append(self, data: bytes, last_phy: int, end_phy: int) -> None:
        """Store the units that follow the last one; the fast path of ``put``.

        Raises:
            RetryableDiskFullError: the disk is full; the queue is unchanged, and can be retried.
            StoreIOError: an I/O operation failed; the queue must be opened again.
        """
        path = self._tail_path
        position = self._tail_position
        access = self.access
        size = len(data)
        if path is None or position + size > access.mapped_file_size:
            with retryable():
                self._append_across(data)
        else:
            try:
                descriptor = access.cache.get(path)
                written = os.pwrite(descriptor.number, data, position)
            except OSError:
                written = 0  # retried below, which reports the error
            if written != size:
                with retryable():
                    self.write_file(path, position + written, data[written:])
            access.unsynced.note_file(path, size)
            self._tail_position = position + size
        self.last_phy = last_phy
        self.end_phy = end_phy
        self.max_offset += size // _UNIT

    def _append_across(self, data: bytes) -> None:
        end = self.max_offset * _UNIT
        self.write(end, data)
        end += len(data)
        start = self.file_at(end)
        self._tail_path = None if start is None else self.path(start)
        self._tail_position = 0 if start is None else end - start

    def begin_at(self, queue_offset: int) -> None:
        """Let the empty queue continue at ``queue_offset``, after pre-blanks.

        At the start of a file, they fill the previous file: a file of only zeros would be removed.
        """
        per_file = self._size // _UNIT
        blanks = queue_offset % per_file or per_file
        self.clear()
        self.write((queue_offset - blanks) * _UNIT, PRE_BLANK * blanks)
        self.last_phy = self.end_phy = NO_PHY
        self.first_offset = self.max_offset = queue_offset
        self.generation += 1

    def _begin(self, queue_offset: int, data: bytes, last_phy: int, end_phy: int) -> None:
        """Discard the contents of the queue and begin at ``queue_offset``, after pre-blanks."""
        self.clear()
        blanks = queue_offset % (self._size // _UNIT)
        self.write((queue_offset - blanks) * _UNIT, PRE_BLANK * blanks + data)
        self.last_phy, self.end_phy = last_phy, end_phy
        self.first_offset = queue_offset
        self.generation += 1  # a reader may have read the old first offset
        self.max_offset = queue_offset + len(data) // _UNIT

    def clear(self) -> None:
        """Remove every file, which leaves the queue as if it had never been written."""
        self.max_offset = 0
        self.generation += 1
        self.cut(0)
        self._forget_tail()
        self.first_offset = 0
        self.last_phy = self.end_phy = NO_PHY

    def abandon(self) -> list[str]:
        """Make the queue empty for its readers, before its folder is deleted; return its files."""
        self.max_offset = self.first_offset = 0
        return super().abandon()

    def truncate(self, queue_offset: int, *, read_only: bool = False) -> None:
        """Remove the units from ``queue_offset`` on, which must be inside the queue.

        A queue that loses its last unit keeps its next offset.
        """
        self.max_offset = queue_offset
        self.generation += 1
        last = None
        while last is None and queue_offset > self.first_offset:  # once, unless there are holes
            queue_offset -= 1
            last = self.unit_at(queue_offset)
        self.last_phy = last[0] if last else NO_PHY
        self.end_phy = record_end(*last) if last else NO_PHY
        self._forget_tail()
        if not read_only:
            self.cut(self.max_offset * _UNIT)

    def truncate_dirty(self, phy_offset: int, *, read_only: bool) -> bool:
        """Remove units of records at or after ``phy_offset``; return whether there were any."""
        if self.last_phy < phy_offset:
            return False
        # A hole is kept: it is not known which of its offsets readers have received.
        first = self.first_at_or_behind(phy_offset, self._stored_phy)
        self.truncate(first, read_only=read_only)
        return True

    def clean_expired(self, min_phy_offset: int) -> int:
        """Remove leading files whose last record has expired; return their number.

        The last file always stays, so the queue keeps its next offset.
        """
        count = 0
        for start in self.starts[:-1]:
            if self._phy_at((start + self._size) // _UNIT - 1) >= min_phy_offset:
                break
            count += 1
        if count:
            self.begin_with(self.starts[count])
            self.generation += 1
            self.remove_leading(count)
        return count

    def begin_with(self, start: int) -> None:
        """Record that units before the file at ``start`` have expired."""
        self.first_offset = max(self.first_offset, start // _UNIT)

    def _forget_tail(self) -> None:
        self._tail_path = None
        self._tail_position = 0

    def _gap(self, queue_offset: int, phy_offset: int) -> QueueGapError:
        """Return the error for a unit that would leave a gap."""
        return queue_gap(
            self.key,
            phy_offset,
            expected=self.max_offset,
            got=queue_offset,
            path=Path(self.folder),
        )
