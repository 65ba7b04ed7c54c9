"""LogHeads: the heads of records in the log at the positions to which units point.

Heads are read separately from the code that moves units (``LogRecords``) on purpose: each detects
errors of the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.store.log.gather import gather
from cqstore.store.log.log_file_maps import LogFileMaps
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
)

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
        file_of = self._files.numbers(phy_offset)
        if file_of[0] >= 0 and file_of.min() == file_of.max():
            self._read_in(int(file_of[0]), phy_offset, size, np.arange(count), heads)
            return heads
        order = np.argsort(file_of, kind="stable")
        breaks = np.flatnonzero(np.diff(file_of[order])) + 1
        for rows in np.split(order, breaks):
            number = int(file_of[rows[0]])
            if number >= 0:
                self._read_in(number, phy_offset, size, rows, heads)
        return heads

    def record(self, phy_offset: int, size: int) -> bytes:
        """Return the bytes of a record that ``read_heads`` found.

        Raises:
            StoreIOError, CorruptionError: as ``read_heads``.
        """
        file = self._files.file(int(self._files.numbers(np.array([phy_offset]))[0]))
        return file.read(phy_offset - file.file_from_offset, size)

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
        magic = head["magic_code"]
        heads.found[rows] = (
            (head["total_size"] == size[rows])
            & (head["phy_offset"] == phy_offset[rows])
            & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        )
        host = np.where(head["sys_flag"] & int(SysFlag.BORN_HOST_V6), HOST_V6_SIZE, HOST_V4_SIZE)
        heads.store_timestamp[rows] = gather(file, ">i8", at + HEAD.size + host)
        heads.queue_id[rows] = head["queue_id"]
        heads.queue_offset[rows] = head["queue_offset"]
