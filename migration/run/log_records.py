"""LogRecords: read the heads of many records at once from the log files.

File queues do not contain store timestamps; the log does. Heads are gathered by numpy, in the order
of the files. ``LogHeads``, which verifies the moved queues, has its own code for this.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError
from cqstore.store.log.gather import gather
from cqstore.store.log.log_file_maps import LogFileMaps
from cqstore.store.queue.bulk import UnitRows
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
)

_TIMESTAMP_V4 = HEAD.size + HOST_V4_SIZE
_TIMESTAMP_V6 = HEAD.size + HOST_V6_SIZE


class LogRecords:
    """The files of a commit log, opened as they are needed. One thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """List the files of the log in ``folders``; none is opened yet.

        Raises:
            StoreIOError: a folder cannot be listed.
        """
        self._files = LogFileMaps(folders)

    def gather(self, rows: UnitRows, places: NDArray[np.int64] | None = None) -> int:
        """Fill in the store timestamps of ``rows``; return how many queue offsets differ.

        ``places`` are the queue offsets of the units; -1 if they are not to be compared with that
        of the record (light queues share a record). The queue offset of the unit counts.

        Raises:
            CorruptionError: a unit does not point to a record of its size, or a file has shrunk.
            StoreIOError: a file cannot be read.
        """
        phy = rows["phy_offset"].astype(np.int64)
        order = np.argsort(phy, kind="stable")
        ordered = phy[order]
        file_of = self._files.numbers(ordered)
        breaks = np.flatnonzero(np.diff(file_of)) + 1
        shifted = 0
        for at in np.split(np.arange(len(order)), breaks) if len(order) else []:
            mine = order[at]
            number = int(file_of[at[0]])
            if number < 0:
                raise _no_record(rows, int(mine[0]), "a phy offset before the start of the log")
            shifted += self._gather_file(number, rows, phy, mine, places)
        return shifted

    def _gather_file(
        self,
        number: int,
        rows: UnitRows,
        phy: NDArray[np.int64],
        mine: NDArray[np.int64],
        places: NDArray[np.int64] | None,
    ) -> int:
        """Fill in the store timestamps of the units ``mine``, whose records are in one file.

        Returns how many records have another queue offset than ``places``.

        Raises:
            CorruptionError: a unit does not point to a record.
        """
        file = self._files.file(number)
        local = phy[mine] - file.file_from_offset
        room = file.file_size - local
        outside = np.flatnonzero(room < MIN_RECORD_SIZE)
        if len(outside):
            raise _no_record(
                rows, int(mine[outside[0]]), "too few bytes before the end of its log file"
            )
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
        recorded, expected = head["queue_offset"], places[mine]
        return int(np.count_nonzero((recorded != expected) & (expected >= 0)))


def _no_record(rows: UnitRows, at: int, found: object) -> CorruptionError:
    """Return the error for a unit that does not point to a record."""
    size = int(rows["size"][at])
    return CorruptionError(
        "a unit does not point to a record of the commit log",
        phy_offset=int(rows["phy_offset"][at]),
        expected=f"a record of {size} bytes",
        got=found,
    )
