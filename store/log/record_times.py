"""Store timestamps of many records at once, gathered by numpy from the log."""

import numpy as np
from numpy.typing import NDArray

from cqstore.store.log.gather import gather
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
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

    Raises:
        TruncatedRecordError: a file has expired meanwhile, or has shrunk.
        StoreIOError: the disk refused.
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
        file = files.file_to_read(int(phys[mine[0]]))
        flags = gather(file, ">i4", at[mine] + _SYS_FLAG_AT)
        born_v6 = (flags & int(SysFlag.BORN_HOST_V6)) != 0
        found[mine] = gather(file, ">i8", at[mine] + np.where(born_v6, _STAMP_V6, _STAMP_V4))
    return found
