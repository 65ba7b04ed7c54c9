"""Indexes of keys beside the one in files: what other layers know to read, found by entry point.

An entry of ``cqstore.indexes`` is a function that takes the root of a store and returns what opens
its ``KeyIndex``, or ``None`` where that store has none. It imports what the opening needs: a store
calls it when it is opened itself, and opens the index at the first query.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from cqstore.store.entry_points import entries
from cqstore.store.errors import CorruptionError
from cqstore.store.whole_import import load_whole

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


OpenIndex = Callable[[], KeyIndex | None]
"""Opens one index, to be closed; ``None`` if it is empty."""


def index_openers(root: Path) -> list[OpenIndex]:
    """Return what opens the other indexes of the store in ``root``, imported by now."""
    openers: list[OpenIndex] = []
    for entry in entries(_GROUP):
        find: Callable[[Path], OpenIndex | None] = load_whole(entry)
        if (opener := find(root)) is not None:
            openers.append(opener)
    return openers


def open_indexes(openers: Iterable[OpenIndex]) -> list[KeyIndex]:
    """Open the indexes. Changes nothing.

    Raises:
        CorruptionError, StoreIOError: one cannot be read.
    """
    found: list[KeyIndex] = []
    try:
        found.extend(index for opener in openers if (index := opener()) is not None)
    except BaseException:
        while found:
            found.pop().close()
        raise
    return found
