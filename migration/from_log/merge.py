"""Merge the indexes of all blocks: the places of all units of each queue, in order.

The three files are memory-mapped, so a task opens them without reading a million names: ``names``
(topics in UTF-8), ``queues.npy`` in key order, and ``pieces.npy``.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.migration.from_log.blocks import Runs, map_units, read_index
from cqstore.migration.from_log.scan_plan import ScanDone, ScanSpace
from cqstore.store.errors import QueueGapError, os_errors
from cqstore.store.path_kind import exists
from cqstore.store.queue.bulk import key_order
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QueueKey

NAMES, QUEUES, PIECES = "names", "queues.npy", "pieces.npy"
QUEUE_ROWS = np.dtype([
    ("name", "<i8"), ("name_end", "<i8"), ("queue_id", "<i8"), ("piece", "<i8"),
    ("piece_end", "<i8"), ("next_offset", "<i8"),
])  # fmt: skip
"""A queue: its topic in ``names``, its rows in ``pieces``."""
PIECE_ROWS = np.dtype([("task", "<i8"), ("queue_offset", "<i8"), ("row", "<i8"), ("count", "<i8")])
"""Consecutive units of a queue and their place in a block file; sorted by queue offset."""
_Table = NDArray[np.void]


@dataclass(slots=True)
class Merged:
    """Result of the merge: numbers of queues and units, and restarted queues."""

    queues: int
    units: int
    restarts: list[QueueRestart] = field(default_factory=list)
    """Queues with an older incarnation in the log; the last incarnation is kept."""


def merge_indexes(
    space: ScanSpace, scans: Sequence[ScanDone], ends: Iterable[tuple[QueueKey, int]]
) -> Merged:
    """Write the merged index of ``scans``, which are in log order.

    ``ends`` are next offsets of queues that may have no units.

    Raises:
        QueueGapError: units are missing inside a queue.
        CorruptionError, StoreIOError: an index cannot be read or written.
    """
    keys, queue_of, pieces = _load(space, scans)
    expired = [(key, end) for key, end in ends if end > 0]
    known = set(keys)
    keys += [key for key, _ in expired if key not in known]
    order = sorted(range(len(keys)), key=lambda number: key_order(keys[number]))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    keys = [keys[number] for number in order]
    queue_of = rank[queue_of]
    in_order = np.argsort(queue_of, kind="stable")
    queue_of, pieces = queue_of[in_order], pieces[in_order]
    queue_of, pieces, restarts = _last_incarnations(space, scans, keys, queue_of, pieces)
    table = _queue_table(keys, queue_of, pieces, dict(expired))
    _write(space, keys, table, pieces)
    return Merged(len(keys), int(pieces["count"].sum()), restarts)


def _load(
    space: ScanSpace, scans: Sequence[ScanDone]
) -> tuple[list[QueueKey], NDArray[np.int64], _Table]:
    """Return the queues, and all runs in log order: the number of each one's queue, the run."""
    numbers: dict[QueueKey, int] = {}
    queues, tables = [np.empty(0, np.int64)], [np.empty(0, PIECE_ROWS)]
    for scan in scans:
        keys, runs = read_index(space.attempt(scan.task, scan.attempt), scan.digest)
        mine = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        queues.append(mine[runs["queue"]])
        tables.append(_pieces(scan.task, runs))
    return list(numbers), np.concatenate(queues), np.concatenate(tables)


def _pieces(task: int, runs: Runs) -> _Table:
    table = np.empty(len(runs), PIECE_ROWS)
    table["task"] = task
    for name in ("queue_offset", "row", "count"):
        table[name] = runs[name]
    return table


def _last_incarnations(
    space: ScanSpace,
    scans: Sequence[ScanDone],
    keys: list[QueueKey],
    queue_of: NDArray[np.int64],
    pieces: _Table,
) -> tuple[NDArray[np.int64], _Table, list[QueueRestart]]:
    """Drop units that a later incarnation of their queue has replaced.

    Raises:
        QueueGapError: units are missing inside a queue.
    """
    ends = pieces["queue_offset"] + pieces["count"]
    same = queue_of[1:] == queue_of[:-1]
    jumps = np.flatnonzero(same & (pieces["queue_offset"][1:] != ends[:-1]))
    jumping = np.unique(queue_of[1:][jumps])
    if not len(jumping):
        return queue_of, pieces, []
    folders = {scan.task: space.attempt(scan.task, scan.attempt) for scan in scans}
    parts, restarts = [pieces[~np.isin(queue_of, jumping)]], []
    owners = [queue_of[~np.isin(queue_of, jumping)]]
    for number in jumping.tolist():
        first, last = np.searchsorted(queue_of, [number, number + 1]).tolist()
        kept, found = _fold(keys[number], pieces[first:last], folders)
        restarts += found
        parts.append(kept)
        owners.append(np.full(len(kept), number))
    queue_of, pieces = np.concatenate(owners), np.concatenate(parts)
    order = np.argsort(queue_of, kind="stable")
    return queue_of[order], pieces[order], restarts


def _fold(
    queue: QueueKey, pieces: _Table, folders: dict[int, Path]
) -> tuple[_Table, list[QueueRestart]]:
    """Combine the runs of one queue in log order, with the rules of ``put_batch``."""
    kept: list[list[int]] = []  # task, queue offset, row, count
    restarts = []
    for task, first, row, count in pieces.tolist():
        end = kept[-1][1] + kept[-1][3] if kept else first
        if first != end:
            phy_offset = int(map_units(folders[task])["phy_offset"][row])
            if first > end:
                raise QueueGapError(
                    f"queue {queue.queue_id} of topic {queue.topic!r}: units are missing before the"
                    " next record. The log is damaged, or log files are missing",
                    phy_offset=phy_offset, expected=f"queue offset {end}",
                    got=f"queue offset {first}",
                )  # fmt: skip
            restarts.append(QueueRestart(queue, range(max(first, kept[0][1]), end), phy_offset))
            while kept and kept[-1][1] >= first:
                kept.pop()
            if kept:
                kept[-1][3] = min(kept[-1][3], first - kept[-1][1])
        kept.append([task, first, row, count])
    return np.array([tuple(each) for each in kept], PIECE_ROWS), restarts


def _queue_table(
    keys: list[QueueKey],
    queue_of: NDArray[np.int64],
    pieces: _Table,
    expired: dict[QueueKey, int],
) -> _Table:
    """Return one row per queue: name, pieces and next offset."""
    table = np.zeros(len(keys), QUEUE_ROWS)
    sizes = [len(_name(key)) for key in keys]
    table["name_end"] = np.cumsum(sizes)
    table["name"] = table["name_end"] - sizes
    table["queue_id"] = [key.queue_id for key in keys]
    numbers = np.arange(len(keys))
    table["piece"] = np.searchsorted(queue_of, numbers, "left")
    table["piece_end"] = np.searchsorted(queue_of, numbers, "right")
    some = table["piece_end"] > table["piece"]
    last = table["piece_end"][some] - 1
    table["next_offset"][some] = pieces["queue_offset"][last] + pieces["count"][last]
    none = np.flatnonzero(~some)
    table["next_offset"][none] = [expired[keys[number]] for number in none.tolist()]
    return table


def _write(space: ScanSpace, keys: list[QueueKey], table: _Table, pieces: _Table) -> None:
    """Write the merged index; rename it when it is complete."""
    unfinished = space.merged.with_name("merging")
    with os_errors("write the merged index", unfinished):
        for folder in (unfinished, space.merged):
            if exists(folder):
                shutil.rmtree(folder)
        unfinished.mkdir()
        with (unfinished / NAMES).open("wb") as file:
            file.writelines(map(_name, keys))
        np.save(unfinished / QUEUES, table)
        np.save(unfinished / PIECES, pieces)
        unfinished.rename(space.merged)


def _name(key: QueueKey) -> bytes:
    return key.topic.encode("utf-8", "surrogateescape")
