"""Check of one index file: its header, its entries, its chains and its slots."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import CorruptionError
from cqstore.store.index.chains import link_chains
from cqstore.store.index.index_file import IndexFile
from cqstore.store.index.layout import INDEX_HEADER, slot_position

REBUILD_INDEX = "run cqstore rebuild --index to rebuild the index from the commit log"
"""The command that repairs a damaged or unreadable index."""


class IndexFinding(NamedTuple):
    """A problem of the index, as ``check`` reports it."""

    problem: str
    path: str
    number: int | None = None
    """Number of the entry."""
    position: int | None = None
    """Position in ``path``, in bytes."""
    expected: object = None
    found: object = None
    damage: bool = True
    """False: the finding is for information only, and no key is missing because of it."""


def check_index_file(file: IndexFile, max_phy_offset: int | None) -> Iterator[IndexFinding]:
    """Yield the problems of ``file``; per block the first case of each kind, with the count.

    ``max_phy_offset`` is the end of the log. Memory: four bytes per slot.
    """
    heads = np.zeros(file.geometry.slots, np.int32)
    last_phy_offset, damaged = -1, False
    try:
        yield from check_header(file)
        for first, rows in file.blocks():
            faults = _faults(rows, first, last_phy_offset, max_phy_offset)
            hashes = rows["key_hash"].astype(np.int64)
            if (hashes < 0).any():
                damaged = True  # such an entry has no slot
            else:
                links = link_chains(hashes % file.geometry.slots, first)
                links.previous[links.opening] = heads[links.slots]
                wrong = rows["previous_index"] != links.previous
                faults.append(("does not point to the previous entry of its chain", wrong))
                heads[links.slots] = links.newest
            yield from _report(file, first, faults)
            last_phy_offset = int(rows["phy_offset"][-1])
        if not damaged:
            yield from _check_slots(file, heads)
    except CorruptionError as exc:
        yield unreadable(exc, file.path)


def unreadable(exc: CorruptionError, path: Path) -> IndexFinding:
    """Return the finding for a file that cannot be read completely."""
    problem = f"{exc.reason}; {REBUILD_INDEX}"
    return IndexFinding(
        problem, str(path), position=exc.position, expected=exc.expected, found=exc.got
    )


def check_header(file: IndexFile) -> Iterator[IndexFinding]:
    """Yield the problems of the header of an index file, compared with its entries.

    Raises:
        CorruptionError: the file cannot be read.
    """
    path, header = str(file.path), INDEX_HEADER.unpack_from(file.read(0, INDEX_HEADER.size))
    if not 0 <= header.index_count <= file.geometry.entries:
        problem = (
            f"the header counts {header.index_count} entries,"
            f" but the file holds at most {file.geometry.entries}"
        )
        yield IndexFinding(problem, path, position=INDEX_HEADER.offset("index_count"))
    last = min(header.index_count, file.geometry.entries) - 1
    if last < 1:
        if any(slots.any() for _, slots in file.slot_blocks()):
            problem = "the header counts no entries, but slots point to entries"
            yield IndexFinding(problem, path, position=INDEX_HEADER.offset("index_count"))
        return
    for name, stored, found in (
        ("begin_phy_offset", header.begin_phy_offset, file.entry(1).phy_offset),
        ("end_phy_offset", header.end_phy_offset, file.entry(last).phy_offset),
    ):
        if stored != found:
            problem = f"the header's {name} is {stored}, but the entry's is {found}"
            yield IndexFinding(problem, path, position=INDEX_HEADER.offset(name))


def _faults(
    rows: NDArray[np.void], first: int, last_phy_offset: int, max_phy_offset: int | None
) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return each kind of fault with the rows that have it."""
    offsets = rows["phy_offset"].astype(np.int64)
    previous = rows["previous_index"]
    index = np.arange(first, first + len(rows))
    end = np.iinfo(np.int64).max if max_phy_offset is None else max_phy_offset
    return [
        ("has a negative hash", rows["key_hash"] < 0),
        ("has a negative time", rows["time_diff"] < 0),
        ("points to an invalid previous entry", (previous < 0) | (previous >= index)),
        (
            "has a smaller phy offset than the previous entry",
            np.diff(offsets, prepend=last_phy_offset) < 0,
        ),
        ("points past the end of the log", offsets >= end),
    ]


def _report(
    file: IndexFile, first: int, faults: list[tuple[str, NDArray[np.bool_]]]
) -> Iterator[IndexFinding]:
    """Yield a finding for each problem of these entries."""
    for problem, rows in faults:
        wrong = np.flatnonzero(rows)
        if len(wrong):
            index = first + int(wrong[0])
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            position = file.geometry.entry_position(index)
            yield IndexFinding(f"an entry {problem}{more}", str(file.path), index, position)


def _check_slots(file: IndexFile, heads: NDArray[np.int32]) -> Iterator[IndexFinding]:
    """Compare the slots with the newest entry of each chain."""
    for first, slots in file.slot_blocks():
        wrong = np.flatnonzero(slots != heads[first : first + len(slots)])
        if len(wrong):
            slot = first + int(wrong[0])
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            problem = f"slot {slot} points to {slots[wrong[0]]} instead of {heads[slot]}{more}"
            yield IndexFinding(problem, str(file.path), position=slot_position(slot))
    used, counted = int(np.count_nonzero(heads)), file.header().hash_slot_count
    if used != counted:
        problem = f"the header counts {counted} used slots, but {used} are used"
        position = INDEX_HEADER.offset("hash_slot_count")
        yield IndexFinding(problem, str(file.path), position=position)
