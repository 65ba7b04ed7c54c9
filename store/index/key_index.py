"""Indexes of keys beside the one in files: what other layers know to read, found by entry point.

An entry of ``cqstore.indexes`` is a function that takes the root of a store and returns a
``KeyIndex`` to be closed, or ``None`` where that store has none.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from cqstore.store.entry_points import entries
from cqstore.store.errors import CorruptionError

_GROUP = "cqstore.indexes"


class KeyIndex(Protocol):
    """One index of keys, open to be read."""

    folder: Path
    fault: CorruptionError | None
    """Why its newest entries may be missing."""

    @property
    def built_to(self) -> int | None:
        """Return the phy offset of the last record whose keys are in it, as far as is known."""

    def phy_offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Yield the records for ``key``, newest first; ``begin`` and ``end`` are ms, included.

        Records of other keys may be among them, and records that have left the log.

        Raises:
            CorruptionError: something of it cannot be read.
        """

    def close(self) -> None:
        """Release the files of the index; it answers no more."""


def open_indexes(root: Path) -> list[KeyIndex]:
    """Open every other index of the store in ``root``. Changes nothing.

    Raises:
        CorruptionError, StoreIOError: one cannot be read.
    """
    found: list[KeyIndex] = []
    for entry in entries(_GROUP):
        opened: Callable[[Path], KeyIndex | None] = entry.load()
        index = opened(root)
        if index is not None:
            found.append(index)
    return found
