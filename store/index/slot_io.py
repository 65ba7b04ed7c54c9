"""Reading and writing slots of an index file: one by one, or all from the first to the last.

A replay brings hundreds of thousands of keys, and two system calls a key would be most of its time.
Slots that lie between those wanted are written as they were read: one thread writes a file.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from store.files import write_all
from store.index.layout import INDEX_SLOT, SLOT_DTYPE

Read = Callable[[int, int], bytes]
"""Returns bytes of the file, by position and size; raises if it has not as many."""
_CLOSE_BYTES = 512
"""Bytes a slot up to which reading what lies between costs less than a call for each."""
_FEWEST = 64
_SPAN_BYTES = 1 << 20
_pack, _unpack = INDEX_SLOT.struct.pack, INDEX_SLOT.struct.unpack


def read_slots(read: Read, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the slots at ``positions`` hold, which ascend; shape (n,).

    Raises:
        StoreIOError, TruncatedRecordError: as ``read``.
    """
    if not _are_close(positions):
        each = [_unpack(read(at, INDEX_SLOT.size))[0] for at in positions.tolist()]
        return np.array(each, np.int64)
    found = np.empty(len(positions), np.int64)
    for rows in _spans(positions):
        slots, wanted = _span(read, positions[rows])
        found[rows] = slots[wanted]
    return found


def write_slots(
    fd: int, read: Read, positions: NDArray[np.int64], newest: NDArray[np.int64]
) -> None:
    """Write the slots at ``positions``, which ascend; one that is read meanwhile is old or new.

    Raises:
        OSError: it was refused; a part may have been written.
        StoreIOError, TruncatedRecordError: as ``read``.
    """
    if not _are_close(positions):
        for position, index in zip(positions.tolist(), newest.tolist(), strict=True):
            write_all(fd, _pack(index), position)
        return
    for rows in _spans(positions):
        slots, wanted = _span(read, positions[rows])
        slots[wanted] = newest[rows]
        write_all(fd, slots.tobytes(), int(positions[rows.start]))


def _are_close(positions: NDArray[np.int64]) -> bool:
    count = len(positions)
    return count >= _FEWEST and int(positions[-1] - positions[0]) <= _CLOSE_BYTES * count


def _spans(positions: NDArray[np.int64]) -> Iterator[slice]:
    """Cut the rows into runs, each of which lies within ``_SPAN_BYTES``."""
    start = 0
    while start < len(positions):
        end = int(np.searchsorted(positions, positions[start] + _SPAN_BYTES))
        yield slice(start, end)
        start = end


def _span(read: Read, positions: NDArray[np.int64]) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Return all slots from the first position to the last, and where those wanted are."""
    first = int(positions[0])
    data = read(first, int(positions[-1]) + INDEX_SLOT.size - first)
    return np.frombuffer(data, SLOT_DTYPE).copy(), (positions - first) // INDEX_SLOT.size
