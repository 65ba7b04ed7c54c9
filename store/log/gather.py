"""Byte ranges and heads of many records, read by numpy from one log file in one step."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cqstore.store.errors import TruncatedRecordError
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    STORED,
)

_STAMP_V4 = HEAD.size + HOST_V4_SIZE
_STAMP_V6 = HEAD.size + HOST_V6_SIZE
_BLOCK = 1 << 16
"""Bytes per system call if there is no map."""
Places = NDArray[np.int64]


def gather(file: MappedFile, kind: DTypeLike, positions: Places) -> NDArray[Any]:
    """Return an array of ``kind`` read at each of ``positions`` of ``file``, any alignment.

    The array has the shape of ``positions``, (n,), and is a copy.

    Raises:
        TruncatedRecordError: a range exceeds what was written, or the file was truncated.
        StoreIOError: a read from disk failed.
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
    if mapped.guard.is_whole:  # after the read
        return found
    return _read(file, dtype, positions)


def gather_times(file: MappedFile, positions: Places, heads: NDArray[Any]) -> NDArray[Any]:
    """Return the store times of the records at ``positions`` of ``file``, whose heads are known.

    Raises:
        TruncatedRecordError, StoreIOError, StoreClosedError: as for ``gather``.
    """
    born_v6 = (heads["sys_flag"] & int(SysFlag.BORN_HOST_V6)) != 0
    at = positions + np.where(born_v6, _STAMP_V6, _STAMP_V4)
    return gather(file, STORED.dtype, at)["store_timestamp"]


def are_records(
    heads: NDArray[Any], phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which heads are those of records of these sizes at these phy offsets."""
    magic = heads["magic_code"]
    is_record = (magic == MAGIC_V1) | (magic == MAGIC_V2)
    is_record &= (heads["total_size"] == sizes) & (heads["phy_offset"] == phy_offsets)
    return np.asarray(is_record)


def _runs(data: Any, dtype: np.dtype[Any], start: int) -> NDArray[Any]:
    """Return, without a copy, the range that begins at every byte: taking rows copies once each."""
    count = len(data) - start - dtype.itemsize + 1
    return np.ndarray((count,), dtype, data, start, (1,))


def _read(file: MappedFile, dtype: np.dtype[Any], positions: Places) -> NDArray[Any]:
    """Read the ranges by system calls; one call reads ranges that are close together."""
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
