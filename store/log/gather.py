"""Runs of bytes of many records at once, gathered by numpy out of one log file."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cqstore.store.errors import TruncatedRecordError
from cqstore.store.log.mapped_file import MappedFile

_BLOCK = 1 << 16
"""Bytes that one system call reads, where there is no map."""
Places = NDArray[np.int64]


def gather(file: MappedFile, kind: DTypeLike, positions: Places) -> NDArray[Any]:
    """Return what starts at each of ``positions`` of ``file``, as ``kind``, any alignment.

    An array of the shape of ``positions``, (n,), all copied.

    Raises:
        TruncatedRecordError: one runs past what was written, or the file has shrunk.
        StoreIOError: the disk refused.
        StoreClosedError: after ``close``.
    """
    dtype = np.dtype(kind)
    if not len(positions):
        return np.empty(0, dtype)
    low, high = int(positions.min()), int(positions.max()) + dtype.itemsize
    if low < 0 or high > file.readable_position:
        raise TruncatedRecordError(
            "a record runs past the end of its file", path=file.path, position=high,
            expected=f"bytes 0 to {file.readable_position}", got=f"bytes {low} to {high}",
        )  # fmt: skip
    mapped = file.map()
    found = _runs(mapped, dtype, 0)[positions]
    if mapped.guard.is_whole:  # behind the read
        return found
    return _read(file, dtype, positions)


def _runs(data: Any, dtype: np.dtype[Any], start: int) -> NDArray[Any]:
    """Return, without a copy, the run that begins at every byte: taking rows is one copy each."""
    count = len(data) - start - dtype.itemsize + 1
    return np.ndarray((count,), dtype, data, start, (1,))


def _read(file: MappedFile, dtype: np.dtype[Any], positions: Places) -> NDArray[Any]:
    """Read the runs by system calls, those that lie near each other by one."""
    found = np.empty(len(positions), dtype)
    order = np.argsort(positions, kind="stable")
    ordered, at = positions[order], 0
    while at < len(ordered):
        start = int(ordered[at])
        stop = int(np.searchsorted(ordered, start + _BLOCK, "right"))
        block = file.read(start, int(ordered[stop - 1]) + dtype.itemsize - start)
        found[order[at:stop]] = _runs(block, dtype, 0)[ordered[at:stop] - start]
        at = stop
    return found
