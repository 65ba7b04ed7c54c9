"""Stand-ins for the log and the checkpoint where a queue backend is tested by itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class NoLogFiles(ABC):
    """What a log answers that has facts about its records and no files of them."""

    @abstractmethod
    def store_timestamp(self, phy_offset: int, size: int) -> int:
        """Return the store time of a record, ms."""

    def store_timestamps(
        self, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        found = map(self.store_timestamp, phy_offsets.tolist(), sizes.tolist())
        return np.fromiter(found, np.int64, len(sizes))

    def readable(self, offset: int, /) -> tuple[int, object, int] | None:
        _ = offset
        return None


@dataclass
class NoCheckpoint:
    """A checkpoint that vouches for nothing."""

    min_timestamp: int = 0
    logics_phy_offset: int = 0
