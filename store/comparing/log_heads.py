"""LogHeads: what the log itself says at the places that units point to.

Apart from the code that moves units on purpose: what one of the two gets wrong the other sees.
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from store.errors import os_errors
from store.files import NAME_DIGITS, reading
from store.log.record_times import field_of_records
from store.record.message import SysFlag
from store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
)

_MAPS = 64
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Heads(NamedTuple):
    """Columns, a row a unit that was asked for; without ``found`` the others mean nothing."""

    found: Flags
    """A record of the unit's size begins there and says so itself."""
    store_timestamp: Longs
    queue_id: Longs
    queue_offset: Longs


class RecordHeads(Protocol):
    """Whoever can tell what the log has."""

    def look(self, phy_offset: Longs, size: Longs) -> Heads:
        """Return what the log has at each of ``phy_offset``, where records of ``size`` should be.

        Raises:
            StoreIOError: the log cannot be read.
        """


class LogHeads:
    """Looks at the files of a commit log through maps. One thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """List the files.

        Raises:
            StoreIOError: a folder cannot be listed.
        """
        self._paths: dict[int, Path] = {}
        for folder in folders:
            with os_errors("list the commit log", folder):
                for path in folder.iterdir():
                    if len(path.name) == NAME_DIGITS and path.name.isascii():
                        self._paths |= {int(path.name): path} if path.name.isdigit() else {}
        self._starts = np.array(sorted(self._paths), np.int64)
        self._maps: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()

    def look(self, phy_offset: Longs, size: Longs) -> Heads:
        """Return what the log has at each of ``phy_offset``, where records of ``size`` should be.

        Raises:
            StoreIOError: a file cannot be mapped.
        """
        count = len(phy_offset)
        heads = Heads(np.zeros(count, np.bool_), *(np.zeros(count, np.int64) for _ in range(3)))
        if not count or not len(self._starts):
            return heads
        file_of = np.searchsorted(self._starts, phy_offset, "right") - 1
        if file_of[0] >= 0 and file_of.min() == file_of.max():
            self._look_in(int(file_of[0]), phy_offset, size, np.arange(count), heads)
            return heads
        order = np.argsort(file_of, kind="stable")
        breaks = np.flatnonzero(np.diff(file_of[order])) + 1
        for rows in np.split(order, breaks):
            number = int(file_of[rows[0]])
            if number >= 0:
                self._look_in(number, phy_offset, size, rows, heads)
        return heads

    def record(self, phy_offset: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes of a record that ``look`` found; they are the map's."""
        number = int(np.searchsorted(self._starts, phy_offset, "right")) - 1
        start = int(self._starts[number])
        return self._map(start)[phy_offset - start : phy_offset - start + size]

    def _look_in(
        self, number: int, phy_offset: Longs, size: Longs, rows: Longs, heads: Heads
    ) -> None:
        start = int(self._starts[number])
        data = self._map(start)
        at = phy_offset[rows] - start
        fits = (at + np.maximum(size[rows], MIN_RECORD_SIZE)) <= len(data)
        rows, at = (rows, at) if fits.all() else (rows[fits], at[fits])
        if not len(rows):
            return
        magic = field_of_records(data, ">i4", HEAD.offset("magic_code"))[at]
        heads.found[rows] = (
            (field_of_records(data, ">i4", HEAD.offset("total_size"))[at] == size[rows])
            & (field_of_records(data, ">i8", HEAD.offset("phy_offset"))[at] == phy_offset[rows])
            & ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        )
        flags = field_of_records(data, ">i4", HEAD.offset("sys_flag"))[at]
        host = np.where(flags & int(SysFlag.BORN_HOST_V6), HOST_V6_SIZE, HOST_V4_SIZE)
        heads.store_timestamp[rows] = field_of_records(data, ">i8", HEAD.size)[at + host]
        heads.queue_id[rows] = field_of_records(data, ">i4", HEAD.offset("queue_id"))[at]
        heads.queue_offset[rows] = field_of_records(data, ">i8", HEAD.offset("queue_offset"))[at]

    def _map(self, start: int) -> NDArray[np.uint8]:
        data = self._maps.get(start)
        if data is not None:
            self._maps.move_to_end(start)
            return data
        path = self._paths[start]
        with os_errors("read the commit log", path):
            with reading(path) as file:
                size = os.fstat(file.fileno()).st_size  # an empty file cannot be mapped
                held = np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)
            data = np.asarray(held)
        while len(self._maps) >= _MAPS:
            self._maps.popitem(last=False)
        self._maps[start] = data
        return data
