"""LogHeads: the heads of records in the log at the positions to which units point."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.store.log.gather import are_records, gather, gather_times
from cqstore.store.log.log_file_maps import LogFileMaps
from cqstore.store.record.record_layout import HEAD, MIN_RECORD_SIZE

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Heads(NamedTuple):
    """Columns with one row per requested unit; rows without ``found`` have no meaning."""

    found: Flags
    """A record begins there with the size that the unit has."""
    store_timestamp: Longs
    queue_id: Longs
    queue_offset: Longs


class RecordHeads(Protocol):
    """Reads the heads of records in the log."""

    def read_heads(self, phy_offset: Longs, size: Longs) -> Heads:
        """Return the heads at each of ``phy_offset``, where records of ``size`` should be.

        Raises:
            StoreIOError: the log cannot be read.
        """


class LogHeads:
    """Reads the files of a commit log, which are mapped if that is safe. One thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """List the files.

        Raises:
            StoreIOError: a folder cannot be listed.
        """
        self._files = LogFileMaps(folders)

    def read_heads(self, phy_offset: Longs, size: Longs) -> Heads:
        """Return the heads at each of ``phy_offset``, where records of ``size`` should be.

        Raises:
            StoreIOError: a file cannot be read.
            CorruptionError: a file was truncated since it was first read.
        """
        count = len(phy_offset)
        heads = Heads(np.zeros(count, np.bool_), *(np.zeros(count, np.int64) for _ in range(3)))
        if not count:
            return heads
        order = np.argsort(phy_offset, kind="stable")
        file_of = self._files.numbers(phy_offset[order])
        starts = [0, *(np.flatnonzero(np.diff(file_of)) + 1).tolist()]
        for start, end in pairwise([*starts, count]):
            if file_of[start] >= 0:
                self._read_in(int(file_of[start]), phy_offset, size, order[start:end], heads)
        return heads

    def record(self, phy_offset: int, size: int) -> bytes:
        """Return the bytes of a record that ``read_heads`` found.

        Raises:
            StoreIOError, CorruptionError: as ``read_heads``.
        """
        file = self._files.file(int(self._files.numbers(np.array([phy_offset]))[0]))
        return file.read(phy_offset - file.file_from_offset, size)

    def description(self, phy_offset: int, size: int) -> str:
        """Return what is at ``phy_offset``, where ``read_heads`` found no record of ``size``.

        Raises:
            StoreIOError, CorruptionError: as ``read_heads``.
        """
        number = int(self._files.numbers(np.array([phy_offset]))[0])
        if number < 0:
            return "a phy offset before the start of the log"
        file = self._files.file(number)
        at = phy_offset - file.file_from_offset
        if file.file_size - at < max(size, MIN_RECORD_SIZE):
            return "too few bytes before the end of its log file"
        head = HEAD.unpack_from(file.read(at, HEAD.size))
        return f"size {head.total_size}, magic {head.magic_code}, phy offset {head.phy_offset}"

    def _read_in(
        self, number: int, phy_offset: Longs, size: Longs, rows: Longs, heads: Heads
    ) -> None:
        """Read the heads of the records ``rows``, which are in one file, into ``heads``."""
        file = self._files.file(number)
        at = phy_offset[rows] - file.file_from_offset
        fits = (at + np.maximum(size[rows], MIN_RECORD_SIZE)) <= file.file_size
        rows, at = (rows, at) if fits.all() else (rows[fits], at[fits])
        if not len(rows):
            return
        head = gather(file, HEAD.dtype, at)
        heads.found[rows] = are_records(head, phy_offset[rows], size[rows])
        heads.store_timestamp[rows] = gather_times(file, at, head)
        heads.queue_id[rows] = head["queue_id"]
        heads.queue_offset[rows] = head["queue_offset"]
