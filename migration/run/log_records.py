"""LogRecords: fill in the store timestamps of units from the records of the log.

File queues do not contain store timestamps; the log does.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.bulk import UnitRows


class LogRecords:
    """The files of a commit log, opened as they are needed. One thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """List the files of the log in ``folders``; none is opened yet.

        Raises:
            StoreIOError: a folder cannot be listed.
        """
        self._heads = LogHeads(folders)

    def gather(self, rows: UnitRows, places: NDArray[np.int64] | None = None) -> int:
        """Fill in the store timestamps of ``rows``; return how many queue offsets differ.

        ``places`` are the queue offsets of the units; -1 if they are not to be compared with that
        of the record (light queues share a record). The queue offset of the unit counts.

        Raises:
            CorruptionError: a unit does not point to a record of its size, or a file has shrunk.
            StoreIOError: a file cannot be read.
        """
        phy, sizes = rows["phy_offset"].astype(np.int64), rows["size"].astype(np.int64)
        heads = self._heads.read_heads(phy, sizes)
        if not heads.found.all():
            at = int(np.argmin(heads.found))
            phy_offset, size = int(phy[at]), int(sizes[at])
            raise CorruptionError(
                "a unit does not point to a record of the commit log", phy_offset=phy_offset,
                expected=f"a record of {size} bytes",
                got=self._heads.description(phy_offset, size),
            )  # fmt: skip
        rows["store_timestamp"] = heads.store_timestamp
        if places is None:
            return 0
        return int(np.count_nonzero((heads.queue_offset != places) & (places >= 0)))
