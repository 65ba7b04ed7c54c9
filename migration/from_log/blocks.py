"""Blocks: the units of a range of log files, grouped by queue.

The folder of an attempt contains ``units`` (packed 28-byte rows), ``runs.npy`` and
``queues.jsonl``. A run is a sequence of rows of one queue with consecutive queue offsets. Within a
block, queues are in key order, and the runs of a queue in log order. The blocks are in log order.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import reading
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows, key_order
from cqstore.store.queue.units import QueueKey, UnitBatch

UNITS, _RUNS, _QUEUES = "units", "runs.npy", "queues.jsonl"
RUNS = np.dtype([("queue", "<i8"), ("queue_offset", "<i8"), ("row", "<i8"), ("count", "<i8")])
"""``queue`` is the line in ``queues.jsonl``; ``row`` the first in ``units``."""
_CHUNK = 1 << 20
Runs = NDArray[np.void]
"""Shape (n,), type ``RUNS``."""


class BlockWriter:
    """Writer of the blocks of consecutive units into ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[QueueKey, int] = {}
        self._runs: list[Runs] = []
        self._rows = 0
        self._file = (folder / UNITS).open("wb")

    def add(self, units: UnitBatch) -> None:
        """Write the next units in log order as a block, sorted by queue."""
        runs = units.runs(key_order)
        numbers = self._numbers
        table = np.empty(len(runs), RUNS)
        table["queue"] = [numbers.setdefault(queue, len(numbers)) for queue in runs.queues]
        table["queue_offset"] = runs.first_offsets
        table["row"] = np.add(runs.starts, self._rows)
        table["count"] = np.subtract(runs.ends, runs.starts)
        self._runs.append(table)
        self._rows += len(units)
        with os_errors("write a block file", self._folder / UNITS):
            self._file.write(runs.units.data)
            self._file.flush()

    def finish(self) -> str:
        """Write the index; return its digest."""
        self._file.close()
        runs = np.concatenate([np.empty(0, RUNS), *self._runs])
        with os_errors("write the index of a block file", self._folder):
            np.save(self._folder / _RUNS, runs)
            with (self._folder / _QUEUES).open("w", encoding="ascii") as file:
                file.writelines(json.dumps(list(key)) + "\n" for key in self._numbers)
        return _digest(self._folder)

    def abandon(self) -> None:
        """Close the file after a failure."""
        self._file.close()


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
