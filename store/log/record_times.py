"""Store timestamps of many records, read from the log by numpy in one step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cqstore.store.java_numbers import LONG_MIN
from cqstore.store.log.gather import gather
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    STORED,
)

_STAMP_V4 = HEAD.size + HOST_V4_SIZE
_STAMP_V6 = HEAD.size + HOST_V6_SIZE
Longs = NDArray[np.int64]
_NOT_THERE = -1
NO_TIME = LONG_MIN
"""The value of an unknown store time: every other number may be a store time."""


def store_timestamps(
    files: MappedFileQueue, end: int, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return when each record was stored, ms; -1 if it is not in the log, which ends at ``end``.

    The arrays have one shape, (n,), and so has the result. Any thread.

    Raises:
        TruncatedRecordError: a file has expired meanwhile, or was truncated.
        StoreIOError: a read from disk failed.
    """
    phys, sizes = phy_offsets.astype(np.int64), sizes.astype(np.int64)
    found = np.full(len(phys), _NOT_THERE, np.int64)
    for file, rows in _by_file(files, end, phys, sizes):
        at = phys[rows] % files.file_size
        found[rows] = _stamps(file, at, gather(file, HEAD.dtype, at))
    return found


def known_timestamps(
    files: MappedFileQueue, end: int, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return ``store_timestamps``, with ``NO_TIME`` where no record of that size begins.

    Raises:
        TruncatedRecordError, StoreIOError: as for ``store_timestamps``.
    """
    phys, sizes = phy_offsets.astype(np.int64), sizes.astype(np.int64)
    found = np.full(len(phys), NO_TIME, np.int64)
    for file, rows in _by_file(files, end, phys, sizes):
        at = phys[rows] % files.file_size
        heads = gather(file, HEAD.dtype, at)
        is_record = np.isin(heads["magic_code"], (MAGIC_V1, MAGIC_V2))
        is_record &= heads["total_size"] == sizes[rows]
        found[rows] = np.where(is_record, _stamps(file, at, heads), NO_TIME)
    return found


def _by_file(
    files: MappedFileQueue, end: int, phys: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[tuple[MappedFile, NDArray[np.intp]]]:
    """Return the rows whose records may be in the log, by file, in log order."""
    at = phys % files.file_size
    inside = (phys >= max(files.min_offset(), 0)) & (phys + sizes <= end)
    inside &= (sizes >= MIN_RECORD_SIZE) & (at + _STAMP_V6 + STORED.size <= files.file_size)
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(phys[rows], kind="stable")]
    parts = np.split(rows, np.flatnonzero(np.diff(phys[rows] // files.file_size)) + 1)
    return [(files.file_to_read(int(phys[part[0]])), part) for part in parts if len(part)]


def _stamps(file: MappedFile, at: NDArray[np.int64], heads: NDArray[Any]) -> NDArray[Any]:
    """Return the store times of the records that begin at ``at`` in ``file``."""
    born_v6 = (heads["sys_flag"] & int(SysFlag.BORN_HOST_V6)) != 0
    return gather(file, STORED.dtype, at + np.where(born_v6, _STAMP_V6, _STAMP_V4))[
        "store_timestamp"
    ]
