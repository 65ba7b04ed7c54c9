"""Batch queues: 46-byte units whose records hold several messages each. Read, never written.

Source: RocketMQ ``BatchConsumeQueue``.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cq_file.layout import BATCH_UNIT, BATCH_UNITS, file_name, parse_file_name
from store.errors import CorruptionError, os_errors
from store.queue.units import CqUnit


class BatchConsumeQueue:
    """One batch queue, read whole when it is first asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: NDArray[np.void] | None = None

    def rows(self) -> NDArray[np.void]:
        """Return the valid units in order, as rows of ``BATCH_UNITS``.

        Raises:
            CorruptionError: a file is not a whole number of units, or files do not adjoin.
        """
        if self._rows is None:
            self._rows = self._load()
        return self._rows

    def _load(self) -> NDArray[np.void]:
        parts: list[NDArray[np.void]] = []
        with os_errors("read a batch queue", self.folder):
            found = {parse_file_name(path.name): path for path in self.folder.iterdir()}
            starts = sorted(start for start in found if start is not None)
            following = starts[0] if starts else 0
            for start in starts:
                data = found[start].read_bytes()
                if len(data) % BATCH_UNIT.size or start != following:
                    raise CorruptionError(
                        "a batch queue file has an impossible size or place", path=found[start],
                        expected=f"{file_name(following)}, a multiple of {BATCH_UNIT.size} bytes",
                        got=f"{len(data)} bytes",
                    )  # fmt: skip
                following = start + len(data)
                rows = np.frombuffer(data, BATCH_UNITS)
                good = (
                    (rows["phy_offset"] >= 0)
                    & (rows["size"] > 0)
                    & (rows["msg_base_offset"] >= 0)
                    & (rows["batch_size"] > 0)
                )
                bad = np.flatnonzero(~good)
                parts.append(rows[: int(bad[0])] if len(bad) else rows)
                if len(bad):
                    break
        return np.concatenate(parts) if parts else np.zeros(0, BATCH_UNITS)

    def max_offset(self) -> int:
        """Return the offset behind the last message."""
        rows = self.rows()
        if not len(rows):
            return 0
        return int(rows[-1]["msg_base_offset"]) + int(rows[-1]["batch_size"])

    def min_offset(self, log_min: int) -> int:
        """Return the offset of the first message whose record is in the log."""
        rows = self.rows()
        at = int(np.searchsorted(rows["phy_offset"].astype(np.int64), log_min))
        return int(rows[at]["msg_base_offset"]) if at < len(rows) else self.max_offset()

    def last_end(self) -> int:
        """Return where the last unit's record ends in the log; 0 without units."""
        rows = self.rows()
        return int(rows[-1]["phy_offset"]) + int(rows[-1]["size"]) if len(rows) else 0

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield units, first the one that holds ``queue_offset``."""
        rows = self.rows()
        bases = rows["msg_base_offset"].astype(np.int64)
        at = max(int(np.searchsorted(bases, queue_offset, side="right")) - 1, 0)
        for row in rows[at:]:
            unit = CqUnit(
                int(row["msg_base_offset"]), int(row["phy_offset"]), int(row["size"]),
                int(row["tags_code"]), int(row["batch_size"]),
            )  # fmt: skip
            if unit.queue_offset + unit.batch_num > queue_offset:
                yield unit

    def timestamp(self, queue_offset: int) -> int:
        """Return the store time of the record that holds ``queue_offset``, -1 without one."""
        rows = self.rows()
        bases = rows["msg_base_offset"].astype(np.int64)
        at = int(np.searchsorted(bases, queue_offset, side="right")) - 1
        if at < 0 or queue_offset >= self.max_offset():
            return -1
        return int(rows[at]["store_timestamp"])
