"""Other key indexes than the hash index in files; entry points provide them.

An entry of ``cqstore.indexes`` is a function that takes the root of a store and returns a function
that opens its ``KeyIndex``, or ``None`` if that store has none. It imports the modules for the
opening: a store calls it when it is opened itself, and opens the index at the first query.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from cqstore.store.entry_points import entries
from cqstore.store.errors import CorruptionError
from cqstore.store.whole_import import load_whole

_GROUP = "cqstore.indexes"


class KeyIndex(Protocol):
    """One index of keys, open for reading."""

    folder: Path
    fault: CorruptionError | None
    """Why its newest entries may be missing."""

    @property
    def built_to(self) -> int | None:
        """Return the phy offset of the last record whose keys are in the index, if known."""

    def phy_offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Yield the records for ``key``, newest first; ``begin`` and ``end`` are ms, included.

        The result may contain records of other keys, and expired records.

        Raises:
            CorruptionError: a part of the index cannot be read.
        """

    def close(self) -> None:
        """Release the files of the index, which cannot be used afterwards."""


OpenIndex = Callable[[], KeyIndex | None]
"""Opens one index, which the caller closes; ``None`` if it is empty."""


def index_openers(root: Path) -> list[OpenIndex]:
    """Return functions that open the other indexes of the store in ``root``, already imported."""
    openers: list[OpenIndex] = []
    for entry in entries(_GROUP):
        find: Callable[[Path], OpenIndex | None] = load_whole(entry)
        if (opener := find(root)) is not None:
            openers.append(opener)
    return openers


def open_indexes(openers: Iterable[OpenIndex]) -> list[KeyIndex]:
    """Open the indexes. Changes nothing.

    Raises:
        CorruptionError, StoreIOError: an index cannot be read.
    """
    found: list[KeyIndex] = []
    try:
        found.extend(index for opener in openers if (index := opener()) is not None)
    except BaseException:
        while found:
            found.pop().close()
        raise
    return found
