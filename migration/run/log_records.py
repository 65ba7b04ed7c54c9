"""LogRecords: the heads of many records at once, straight from the log's files.

A file queue does not keep when its records were stored; the log does. Heads are gathered by numpy,
in the order in which they lie in the files.
"""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from store.errors import CorruptionError, os_errors
from store.files import check_regular, is_file_name
from store.log.gather import gather
from store.log.mapped_file import MappedFile
from store.queue.bulk import UnitRows
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
_TIMESTAMP_V4 = HEAD.size + HOST_V4_SIZE
_TIMESTAMP_V6 = HEAD.size + HOST_V6_SIZE


class LogRecords:
    """The files of a commit log, opened as they are needed. One thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """List the files.

        Raises:
            StoreIOError: a folder cannot be listed.
        """
        found: dict[int, Path] = {}
        for folder in folders:
            with os_errors("list the commit log", folder):
                found |= {int(p.name): p for p in folder.iterdir() if is_file_name(p.name)}
        self._starts = np.array(sorted(found), np.int64)
        self._paths = found
        self._files: OrderedDict[int, MappedFile] = OrderedDict()

    def gather(self, rows: UnitRows, places: NDArray[np.int64] | None = None) -> int:
        """Fill in the store timestamps of ``rows``; return how many records name another place.

        ``places`` are the units' queue offsets; -1 where the record's own cannot tell (light
        queues share a record). A unit's place in its queue counts, whatever its record says.

        Raises:
            CorruptionError: a unit leads to no record of its size, or a file has shrunk.
            StoreIOError: a file cannot be read.
        """
        phy = rows["phy_offset"].astype(np.int64)
        order = np.argsort(phy, kind="stable")
        ordered = phy[order]
        file_of = np.searchsorted(self._starts, ordered, "right") - 1
        breaks = np.flatnonzero(np.diff(file_of)) + 1
        shifted = 0
        for at in np.split(np.arange(len(order)), breaks) if len(order) else []:
            mine = order[at]
            number = int(file_of[at[0]])
            if number < 0:
                raise _no_record(rows, int(mine[0]), "before the start of the log")
            shifted += self._gather_file(int(self._starts[number]), rows, phy, mine, places)
        return shifted

    def _gather_file(
        self,
        start: int,
        rows: UnitRows,
        phy: NDArray[np.int64],
        mine: NDArray[np.int64],
        places: NDArray[np.int64] | None,
    ) -> int:
        """Fill in the store times of the units ``mine``, whose records lie in one file.

        Returns how many records name another place than ``places`` says.

        Raises:
            CorruptionError: one leads to no record.
        """
        file = self._file(start)
        local = phy[mine] - start
        room = file.file_size - local
        outside = np.flatnonzero(room < MIN_RECORD_SIZE)
        if len(outside):
            raise _no_record(rows, int(mine[outside[0]]), "behind the end of its log file")
        head = gather(file, HEAD.dtype, local)
        size, magic, own = head["total_size"], head["magic_code"], head["phy_offset"]
        wrong = (
            (size != rows["size"][mine])
            | (own != phy[mine])
            | ((magic != MAGIC_V1) & (magic != MAGIC_V2))
        )
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            found = f"size {size[first]}, magic {magic[first]}, phy offset {own[first]}"
            raise _no_record(rows, int(mine[first]), found)
        v6 = (head["sys_flag"] & int(SysFlag.BORN_HOST_V6)) != 0
        at = local + np.where(v6, _TIMESTAMP_V6, _TIMESTAMP_V4)
        rows["store_timestamp"][mine] = gather(file, ">i8", at)
        if places is None:
            return 0
        said, asked = head["queue_offset"], places[mine]
        return int(np.count_nonzero((said != asked) & (asked >= 0)))

    def _file(self, start: int) -> MappedFile:
        """Return a file of the log, mapped; the maps used longest ago are let go."""
        file = self._files.get(start)
        if file is None:
            path = self._paths[start]
            with os_errors("read the commit log", path):
                check_regular(path)
                file = MappedFile(path, path.stat().st_size, read_only=True)
            while len(self._files) >= _MAPS:
                self._files.popitem(last=False)
            self._files[start] = file
        else:
            self._files.move_to_end(start)
        return file


def _no_record(rows: UnitRows, at: int, found: object) -> CorruptionError:
    size = int(rows["size"][at])
    return CorruptionError(
        "a unit leads to no record of the log",
        phy_offset=int(rows["phy_offset"][at]),
        expected=f"a record of {size} bytes",
        got=found,
    )
