"""Store timestamps of many records at once, gathered by numpy from the maps of the log."""

import numpy as np
from numpy.typing import NDArray

from store.log.mapped_file_queue import MappedFileQueue
from store.record.message import SysFlag
from store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MIN_RECORD_SIZE,
    STORED,
)

_STAMP_V4 = HEAD.size + HOST_V4_SIZE
_STAMP_V6 = HEAD.size + HOST_V6_SIZE
_SYS_FLAG_AT = HEAD.offset("sys_flag")
_NOT_THERE = -1


def store_timestamps(
    files: MappedFileQueue, end: int, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return when each record was stored, ms; -1 if it is not in the log, which ends at ``end``.

    The arrays have one shape, (n,), and so has the result. Any thread.
    """
    phys, sizes = phy_offsets.astype(np.int64), sizes.astype(np.int64)
    found = np.full(len(phys), _NOT_THERE, np.int64)
    file_size = files.file_size
    at = phys % file_size
    inside = (phys >= max(files.min_offset(), 0)) & (phys + sizes <= end)
    inside &= (sizes >= MIN_RECORD_SIZE) & (at + _STAMP_V6 + STORED.size <= file_size)
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(phys[rows], kind="stable")]
    for mine in np.split(rows, np.flatnonzero(np.diff(phys[rows] // file_size)) + 1):
        if not len(mine):
            continue
        _, view = files.select_file(int(phys[mine[0]]))
        flags = field_of_records(view, ">i4", _SYS_FLAG_AT)[at[mine]]
        born_v6 = (flags & int(SysFlag.BORN_HOST_V6)) != 0
        found[mine] = field_of_records(view, ">i8", 0)[
            at[mine] + np.where(born_v6, _STAMP_V6, _STAMP_V4)
        ]
    return found


def field_of_records(
    view: memoryview | NDArray[np.uint8], kind: str, position: int
) -> NDArray[np.int64]:
    """Return, without a copy, the field at ``position`` of a record at every byte of ``view``.

    As if one began there: indexed by where records do begin, it gives their fields.
    """
    count = len(view) - position - np.dtype(kind).itemsize + 1
    return np.ndarray((count,), kind, view, position, (1,))
