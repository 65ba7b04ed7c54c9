"""Store timestamps of many records, read from the log by numpy in one step."""

import numpy as np
from numpy.typing import NDArray

from cqstore.store.java_numbers import LONG_MIN
from cqstore.store.log.gather import are_records, gather, gather_times
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.record.record_layout import HEAD, HOST_V6_SIZE, MIN_RECORD_SIZE, STORED

_STAMP_SPAN = HEAD.size + HOST_V6_SIZE + STORED.size
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
        found[rows] = gather_times(file, at, gather(file, HEAD.dtype, at))
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
        is_record = are_records(heads, phys[rows], sizes[rows])
        found[rows] = np.where(is_record, gather_times(file, at, heads), NO_TIME)
    return found


def _by_file(
    files: MappedFileQueue, end: int, phys: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[tuple[MappedFile, NDArray[np.intp]]]:
    """Return the rows whose records may be in the log, by file, in log order."""
    at = phys % files.file_size
    inside = (phys >= max(files.min_offset(), 0)) & (phys + sizes <= end)
    inside &= (sizes >= MIN_RECORD_SIZE) & (at + _STAMP_SPAN <= files.file_size)
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(phys[rows], kind="stable")]
    parts = np.split(rows, np.flatnonzero(np.diff(phys[rows] // files.file_size)) + 1)
    return [(files.file_to_read(int(phys[part[0]])), part) for part in parts if len(part)]
