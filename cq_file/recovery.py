"""Finds the end of a queue from its files alone.

A queue's files contain zeros after the end, except after a crash: then the newest pages may be
missing, and where something was cut but not zeroed there may be any bytes. After a clean stop, the
end is found by bisection and its neighbours are checked; after a crash, the last files are scanned.
Units that were surely on disk (``safe_phy_offset``) are kept even after a hole: no replay writes
them again, and reads report the hole.

Source: RocketMQ ``ConsumeQueue.recover``, which stops at the first hole.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_file._short_queue import short_queue
from cqstore.cq_file.layout import FILE_UNIT, PRE_BLANK_UNIT, FileUnit, is_unit
from cqstore.cq_file.queue_files import QueueFiles
from cqstore.store.files import LAST_OFFSET

_UNIT = FILE_UNIT.size
_SCAN_UNITS = 3276
"""Number of units read at once, just under 64 KiB."""
_FIRST_UNITS = 204
"""Number of units read first, just under a page of 4 KiB: short queues end there."""
_NEIGHBOURS = 200
"""Number of units before the end whose order is checked after a clean stop."""
SCANNED_FILES = 3
"""Number of last files that a crash may have left incomplete."""
NO_PHY = -1
"""Used as phy offset of a pre-blank, and of a missing unit: lower than every record's."""


class QueueEnd(NamedTuple):
    """Result of the recovery of one queue."""

    first_offset: int
    """Queue offset of the first unit, or the end if there is none."""
    max_offset: int
    last_phy: int
    """Phy offset of the last unit's record, ``NO_PHY`` without units."""
    end_phy: int
    """End of that record."""
    dirty: bool
    """Whether there are nonzero bytes after the end."""
    has_hole: bool
    """Whether rows between the units are invalid: lost, or never written."""
    lost_phy: int = NO_PHY
    """End of the record of the row after the end, if it is after the log's end; ``NO_PHY``: not."""


def find_end(
    files: QueueFiles, *, last_exit_ok: bool, safe_phy_offset: int, max_phy_offset: int
) -> QueueEnd:
    """Return the end of the queue in ``files``. Changes nothing.

    Args:
        files: the queue's files.
        last_exit_ok: the store was stopped cleanly.
        safe_phy_offset: units of records below it were on disk, later ones are dispatched again.
        max_phy_offset: the end of the log; records of units end at or before it.

    Raises:
        FileNotFoundError: a file was removed after it was listed.
        StoreIOError: an I/O operation failed.
    """
    if (short := short_end(files, max_phy_offset)) is not None:
        return short.end
    end = _bisect_end(files, max_phy_offset) if last_exit_ok else None
    if end is None:
        end = _scan_end(files, max_phy_offset)
    strict = end
    dirty = _is_dirty(files, end)
    if dirty:
        last_phy = _last_phy(files, end)
        end = _extend(files, end, last_phy, min(safe_phy_offset, max_phy_offset))
        dirty = _is_dirty(files, end)
    first = find_first(files, end)
    last = _unit(files, end - 1) if end > first else None
    return QueueEnd(
        first_offset=first,
        max_offset=end,
        last_phy=last.phy_offset if last else NO_PHY,
        end_phy=record_end(last.phy_offset, last.size) if last else NO_PHY,
        dirty=dirty,
        has_hole=end > strict,
        lost_phy=_lost_phy(files, end, max_phy_offset) if dirty else NO_PHY,
    )


class ShortQueue(NamedTuple):
    """A queue whose units are the first ones of its only file, with nothing after them."""

    end: QueueEnd
    units: bytes


def short_end(files: QueueFiles, max_phy_offset: int) -> ShortQueue | None:
    """Return end and units of a short queue, read at once; ``None``: it is not one."""
    starts = files.starts
    if len(starts) != 1:
        return None
    start = starts[0]
    found = short_queue(files.path(start), files.access.mapped_file_size, max_phy_offset)
    if found is None:
        return None
    units, last_phy, end_phy = found
    first = start // _UNIT
    end = first + len(units) // _UNIT
    return ShortQueue(QueueEnd(first, end, last_phy, end_phy, dirty=False, has_hole=False), units)


def _lost_phy(files: QueueFiles, end: int, max_phy_offset: int) -> int:
    """Return the end of the record of row ``end`` if it is after the log's end, else ``NO_PHY``."""
    unit = _unit(files, end)
    is_lost = unit.size > 0 and unit.phy_offset >= max_phy_offset
    return record_end(unit.phy_offset, unit.size) if is_lost else NO_PHY


def record_end(phy_offset: int, size: int) -> int:
    """Return the end of a record, limited to a long, since a damaged unit may have any values."""
    return min(phy_offset + size, LAST_OFFSET)


def find_first(files: QueueFiles, end: int) -> int:
    """Return the offset of the first unit that is not a pre-blank, or ``end``."""
    if not files.starts:
        return end
    low = files.starts[0] // _UNIT
    high = min(end, (files.starts[0] + files.access.mapped_file_size) // _UNIT)
    if low >= high or _unit(files, low) != PRE_BLANK_UNIT:
        return low
    while low < high:  # invariant: all rows below low are blank, none from high on
        middle = (low + high) // 2
        if _unit(files, middle) == PRE_BLANK_UNIT:
            low = middle + 1
        else:
            high = middle
    return low


def ordered_phys(units: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return phy offsets (``NO_PHY`` for a pre-blank), and which rows may be units or blanks."""
    phy = units["phy_offset"].astype(np.int64)
    size = units["size"].astype(np.int64)
    valid = is_unit(phy, size)
    blank = (phy == 0) & (size == PRE_BLANK_UNIT.size) & (units["tags_code"] == 0)
    phy[blank] = NO_PHY
    return phy, valid


def read_rows(files: QueueFiles, queue_offset: int, count: int) -> NDArray[np.void]:
    """Return the rows from ``queue_offset`` on, fewer than ``count`` before a missing file."""
    return np.frombuffer(files.read(queue_offset * _UNIT, count * _UNIT), FILE_UNIT.dtype)


def first_break(units: NDArray[np.void], previous: int, limit: int) -> tuple[int, int]:
    """Find the first row that does not continue a queue whose last phy offset is ``previous``.

    A row that points to or after ``limit``, the end of the log, is damaged: it must not make valid
    rows after it look out of order.

    Returns:
        Its index (the number of rows if all continue it) and the phy offset of the row before.
    """
    phy, valid = ordered_phys(units)
    before = np.concatenate(([previous], phy[:-1]))
    good = valid & (phy < limit) & ((phy > before) | ((phy == NO_PHY) & (before == NO_PHY)))
    count = len(units) if good.all() else int(np.argmin(good))
    return count, int(phy[count - 1]) if count else previous


def _unit(files: QueueFiles, queue_offset: int) -> FileUnit:
    data = files.read(queue_offset * _UNIT, _UNIT)
    return FILE_UNIT.unpack_from(data) if len(data) == _UNIT else FileUnit(0, 0, 0)


def _continues(unit: FileUnit, phy: int, limit: int) -> tuple[bool, int]:
    if unit == PRE_BLANK_UNIT:
        return phy == NO_PHY, NO_PHY
    return phy < unit.phy_offset < limit and unit.size > 0, unit.phy_offset


def _bisect_end(files: QueueFiles, limit: int) -> int | None:
    """Find the end by bisection; ``None`` if the units before it are out of order.

    In a store with many queues, most are short: the first units are read at once, and the rest is
    searched in steps that double.
    """
    for start in reversed(files.starts):
        first, behind = start // _UNIT, (start + files.access.mapped_file_size) // _UNIT
        rows = read_rows(files, first, min(_FIRST_UNITS, behind - first))
        count, low_phy = first_break(rows, NO_PHY, limit)
        if not count:
            continue  # a file created before its first unit
        if count < len(rows):
            return first + count
        low, high, step = first + count - 1, behind, count
        while high - low > 1:
            middle = low + step if high == behind and step < high - low else (low + high) // 2
            good, phy = _continues(_unit(files, middle), low_phy, limit)
            if good:
                low, low_phy = middle, phy
                step *= 2
            else:
                high = middle
        window = max(first, high - _NEIGHBOURS)
        count, _ = first_break(read_rows(files, window, high - window), NO_PHY, limit)
        return high if window + count == high else None
    return files.starts[0] // _UNIT if files.starts else 0


def _scan_end(files: QueueFiles, limit: int) -> int:
    """Find the first row in the last files that does not continue the queue."""
    starts = files.starts
    for index in range(max(len(starts) - SCANNED_FILES, 0), -1, -1):
        if not starts:
            break
        end = _scan_from(files, starts[index] // _UNIT, limit)
        if end > starts[index] // _UNIT or index == 0:
            return end
    return 0


def _scan_from(files: QueueFiles, queue_offset: int, limit: int) -> int:
    """Return the end after the last unit from ``queue_offset`` on that is in order."""
    previous, wanted = NO_PHY, _FIRST_UNITS
    while True:
        units = read_rows(files, queue_offset, wanted)
        count, previous = first_break(units, previous, limit)
        queue_offset += count
        if count < wanted:
            return queue_offset
        wanted = _SCAN_UNITS


def _is_dirty(files: QueueFiles, end: int) -> bool:
    return next(files.data_behind(end * _UNIT), None) is not None


def _last_phy(files: QueueFiles, end: int) -> int:
    if not files.starts or end <= files.starts[0] // _UNIT:
        return NO_PHY
    unit = _unit(files, end - 1)
    return NO_PHY if unit == PRE_BLANK_UNIT else unit.phy_offset


def _extend(files: QueueFiles, end: int, last_phy: int, limit: int) -> int:
    """Return the end after the last unit from ``end`` on that is in order and below ``limit``."""
    for start in files.starts:
        offset = max(end, start // _UNIT)
        file_end = (start + files.access.mapped_file_size) // _UNIT
        while offset < file_end:
            units = read_rows(files, offset, min(_SCAN_UNITS, file_end - offset))
            phy, valid = ordered_phys(units)
            phy[~valid | (phy >= limit)] = NO_PHY
            highest = np.maximum.accumulate(np.concatenate(([last_phy], phy)))
            alive = np.flatnonzero(phy > highest[:-1])
            if len(alive):
                end, last_phy = offset + int(alive[-1]) + 1, int(highest[-1])
            offset += len(units)
    return end
