"""The context of an open backend: its access to the log and to the checkpoint."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import ReadOnlyStoreError, StoreFailedError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.read_fallbacks import ReadFallbacks
from cqstore.store.settings.config import StoreConfig


class LogView(Protocol):
    """The commit log as a backend sees it. Any thread."""

    def min_phy_offset(self) -> int:
        """Return the start of the oldest log file, bytes; -1 without files."""

    def max_phy_offset(self) -> int:
        """Return the end of the log, bytes. Before recovery: the end of the last file."""

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        """Return when the record of ``size`` bytes was stored, ms; -1 if it is not in the log."""

    def store_timestamps(
        self, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return ``store_timestamp`` of each record; the arrays have one shape, (n,)."""

    def readable(self, offset: int, /) -> tuple[int, object, int] | None:
        """Return, for compiled code, the log file that contains ``offset``, or ``None``.

        The result is the file's start, its map, and the number of readable bytes in it.
        """

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        """Return the start of the newest file whose first record was stored by ``timestamp``.

        The log's minimum if there is none.
        """


class CheckpointView(Protocol):
    """The fields of the store's checkpoint from which a backend may start after a crash."""

    @property
    def min_timestamp(self) -> int:
        """Return the time, ms, up to which log and file queues are on disk; 0 if unknown."""

    @property
    def logics_phy_offset(self) -> int:
        """Return the start of a record up to which all file queues are on disk; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class QueueStoreContext:
    """The parameters with which a backend is opened."""

    paths: StorePaths
    config: StoreConfig
    log: LogView
    checkpoint: CheckpointView
    last_exit_ok: bool
    """False after a crash (``abort`` existed): only synced data can be trusted."""
    read_only: bool
    read_fallbacks: ReadFallbacks = field(default_factory=ReadFallbacks, compare=False)
    """Fallbacks of all readers of these queues and of the index."""

    def check_writable(self, folder: Path | None = None, *, failed: bool) -> None:
        """Refuse a write to the queues in ``folder``; ``failed``: an earlier write has failed.

        Raises:
            ReadOnlyStoreError: the store is open read-only.
            StoreFailedError: an earlier write failed.
        """
        if self.read_only:
            raise ReadOnlyStoreError("the queues are open read-only", path=folder)
        if failed:
            raise StoreFailedError(
                "an earlier write to the queues failed: close the store and open it again",
                path=folder,
            )
