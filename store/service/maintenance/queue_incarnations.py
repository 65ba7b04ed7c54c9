"""QueueIncarnations: the log's records of each queue, packed: 33 bytes per queue.

A queue is identified by a 64-bit hash of its name. The probability that two of a million queues
have the same hash is one in thirty million; a check would then report a difference that does not
exist.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16
"""Number of records that are collected before they are merged."""


class QueueIncarnation(NamedTuple):
    """The records of a queue in the log since the queue last began."""

    first: int
    """Queue offset of the first record."""
    last: int


class _Columns(NamedTuple):
    """The last incarnation of each queue, one row per queue, by ascending hash."""

    hashes: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    phy_offset: NDArray[np.int64]
    """Phy offset of the record of ``first``."""


class QueueIncarnations:
    """Collects records in log order; then returns each queue's, and those of all other queues."""

    def __init__(self) -> None:
        self._noted: tuple[array[int], array[int], array[int]] = (
            array("q"),
            array("q"),
            array("q"),
        )
        self._rows = _Columns(*(np.empty(0, np.int64) for _ in range(4)))
        self._checked = np.empty(0, bool)

    def note(self, key: tuple[str, int], queue_offset: int, phy_offset: int) -> None:
        """Add one record's place in a queue."""
        hashes, offsets, phys = self._noted
        hashes.append(hash_of(key))
        offsets.append(queue_offset)
        phys.append(phy_offset)
        if len(phys) >= _CHUNK:
            self._merge()

    def lookup(self, keys: Sequence[tuple[str, int]]) -> list[QueueIncarnation | None]:
        """Return the incarnation of each queue, ``None`` if the log has no record of it."""
        self._merge()
        rows = self._rows
        wanted = np.fromiter(map(hash_of, keys), np.int64, len(keys))
        places = np.searchsorted(rows.hashes, wanted)
        places[places == len(rows.hashes)] = 0
        if not len(rows.hashes):
            return [None] * len(keys)
        there = rows.hashes[places] == wanted
        self._checked[places[there]] = True
        pairs = zip(rows.first[places].tolist(), rows.last[places].tolist(), strict=True)
        return [
            QueueIncarnation(*pair) if found else None
            for pair, found in zip(pairs, there.tolist(), strict=True)
        ]

    def unchecked(self) -> Iterator[tuple[int, int]]:
        """Yield hash and first record's phy offset of queues not looked up, in log order."""
        self._merge()
        rest = np.flatnonzero(~self._checked)
        rest = rest[np.argsort(self._rows.phy_offset[rest], kind="stable")]
        for at in rest.tolist():
            yield int(self._rows.hashes[at]), int(self._rows.phy_offset[at])

    def _merge(self) -> None:
        """Merge the collected records into the rows, one row per queue."""
        hashes, offsets, phys = (np.frombuffer(column, np.int64) for column in self._noted)
        if not len(hashes):
            return
        new, began_first, begins_anew = _last_incarnations(hashes, offsets, phys)
        rows = self._rows
        places = np.searchsorted(rows.hashes, new.hashes)
        known = np.zeros(len(new.hashes), bool)
        inside = places < len(rows.hashes)
        known[inside] = rows.hashes[places[inside]] == new.hashes[inside]
        at = places[known]
        goes_on = ~begins_anew[known] & (began_first[known] > rows.last[at])
        rows.last[at] = new.last[known]
        anew = at[~goes_on]
        rows.first[anew] = new.first[known][~goes_on]
        rows.phy_offset[anew] = new.phy_offset[known][~goes_on]
        if not known.all():
            places, fresh = places[~known], ~known
            pairs = zip(rows, new, strict=True)
            self._rows = _Columns(*(np.insert(old, places, more[fresh]) for old, more in pairs))
            self._checked = np.insert(self._checked, places, False)
        self._noted = (array("q"), array("q"), array("q"))


def hash_of(key: tuple[str, int]) -> int:
    """Return a hash of a queue, the same within this process."""
    return hash((key[0], key[1]))


def _last_incarnations(
    hashes: NDArray[np.int64], offsets: NDArray[np.int64], phys: NDArray[np.int64]
) -> tuple[_Columns, NDArray[np.int64], NDArray[np.bool_]]:
    """Return each queue's last incarnation among records in log order, by ascending hash.

    Also the offset of its first record among them, and whether it started over after that one. A
    queue starts over where its offset does not increase.
    """
    order = np.argsort(hashes, kind="stable")
    hashes, offsets, phys = hashes[order], offsets[order], phys[order]
    changes = np.diff(hashes) != 0
    starts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    ends = np.concatenate((starts[1:], [len(hashes)]))
    begins = np.concatenate(([True], changes | (np.diff(offsets) <= 0)))
    begin = np.maximum.accumulate(np.where(begins, np.arange(len(hashes)), 0))[ends - 1]
    incarnations = _Columns(hashes[starts], offsets[begin], offsets[ends - 1], phys[begin])
    return incarnations, offsets[starts], begin > starts
