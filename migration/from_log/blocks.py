"""Blocks: the units of a range of log files, grouped by queue.

The folder of an attempt contains ``units`` (packed 28-byte rows), ``runs.npy`` and
``queues.jsonl``. A run is a sequence of rows of one queue with consecutive queue offsets. Within a
block of about a million units, queues are in key order, and the runs of a queue in log order. The
blocks are in log order.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.migration.from_log.log_scan import ScannedUnits, queue_of, together
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import reading
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows, key_order, row_table
from cqstore.store.queue.units import QueueKey

UNITS, _RUNS, _QUEUES = "units", "runs.npy", "queues.jsonl"
BLOCK_UNITS = 1 << 20
"""Units per block: 28 MB, and twice as much while the block is sorted."""
RUNS = np.dtype([("queue", "<i8"), ("queue_offset", "<i8"), ("row", "<i8"), ("count", "<i8")])
"""``queue`` is the line in ``queues.jsonl``; ``row`` the first in ``units``."""
_SMALL = 1 << 16
_CHUNK = 1 << 20
Runs = NDArray[np.void]
"""Shape (n,), type ``RUNS``."""


class BlockWriter:
    """Writer that collects units in log order and writes them to ``folder``, block by block."""

    def __init__(self, folder: Path, topics: list[str]) -> None:
        """``topics`` are those of ``ScannedUnits.queues``; the list grows while units are added."""
        self._folder = folder
        self._topics = topics
        self._waiting: list[ScannedUnits] = []
        self._count = 0
        self._known: dict[int, int] = {}  # as in ScannedUnits.queues → number of the queue
        self._keys: list[QueueKey] = []
        self._runs: list[Runs] = []
        self._rows = 0
        self._file = (folder / UNITS).open("wb")

    def add(self, units: ScannedUnits) -> None:
        """Add the next units in log order."""
        self._waiting.append(units)
        self._count += len(units.rows)
        if self._count >= BLOCK_UNITS:
            self._pack()

    def finish(self) -> str:
        """Write the waiting units and the index; return the digest of the index."""
        self._pack()
        self._file.close()
        runs = np.concatenate([np.empty(0, RUNS), *self._runs])
        with os_errors("write the index of a block file", self._folder):
            np.save(self._folder / _RUNS, runs)
            with (self._folder / _QUEUES).open("w", encoding="ascii") as file:
                file.writelines(json.dumps(list(key)) + "\n" for key in self._keys)
        return _digest(self._folder)

    def abandon(self) -> None:
        """Close the file after a failure."""
        self._file.close()

    def _pack(self) -> None:
        """Write the waiting units as a block, sorted by queue, and collect its runs."""
        if not self._count:
            return
        queues, offsets, rows = together(self._waiting)
        self._waiting, self._count = [], 0
        names, numbers = self._rank(queues)
        order = np.argsort(
            numbers.astype(np.uint16 if len(names) < _SMALL else np.int32), kind="stable"
        )
        numbers, offsets = numbers[order], offsets[order]
        breaks = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(offsets) != 1)) + 1
        starts = np.concatenate([[0], breaks])
        runs = np.empty(len(starts), RUNS)
        runs["queue"] = names[numbers[starts]]
        runs["queue_offset"] = offsets[starts]
        runs["row"] = self._rows + starts
        runs["count"] = np.diff(np.append(starts, len(rows)))
        self._runs.append(runs)
        self._rows += len(rows)
        with os_errors("write a block file", self._folder / UNITS):
            self._file.write(row_table(rows)[order].data)
            self._file.flush()

    def _rank(self, queues: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the queues in key order, and each unit's index in that order."""
        found, place_of = np.unique(queues, return_inverse=True)
        numbers = [self._number(each) for each in found.tolist()]
        order = sorted(range(len(numbers)), key=lambda at: key_order(self._keys[numbers[at]]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return np.array(numbers, np.int64)[order], rank[place_of]

    def _number(self, queue: int) -> int:
        number = self._known.get(queue)
        if number is None:
            number = self._known[queue] = len(self._keys)
            topic, queue_id = queue_of(queue)
            self._keys.append(QueueKey(self._topics[topic], queue_id))
        return number


def read_index(folder: Path, digest: str) -> tuple[list[QueueKey], Runs]:
    """Return the queues and the runs of the blocks in ``folder``.

    Raises:
        CorruptionError: the index was modified.
        StoreIOError: the index cannot be read.
    """
    with os_errors("read the index of a block file", folder):
        if (found := _digest(folder)) != digest:
            raise CorruptionError(
                "the index of scanned blocks was modified", path=folder, expected=digest, got=found
            )
        with reading(folder / _RUNS) as file:
            runs: Runs = np.load(file, allow_pickle=False)
        with reading(folder / _QUEUES) as file:
            return [QueueKey(*json.loads(line)) for line in file], runs


def map_units(folder: Path) -> UnitRows:
    """Return the rows of the blocks in ``folder``.

    Raises:
        StoreIOError: they cannot be read.
    """
    path = folder / UNITS
    with os_errors("read a block file", path), reading(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, UNIT_ROWS)
        return np.asarray(np.memmap(file, UNIT_ROWS, "r"))


def _digest(folder: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for name in (_RUNS, _QUEUES):
        with reading(folder / name) as file:
            while data := file.read(_CHUNK):
                whole.update(data)
    return whole.hexdigest()
