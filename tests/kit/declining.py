"""Compiled code that takes nothing: what it is asked goes the way of what is odd, in Python."""

from typing import Any

from cqstore.store.index.index_file import IndexFile
from cqstore.store.queue.units import UnitBatch


class Declines:
    """In the place of ``FastQuery`` and ``FileUnits``: no question is plain."""

    def query(self, *_: object) -> None:
        """Answer no query."""

    all_times = query

    def fast_units(self, *_: object) -> None:
        """Read no units."""

    def search(self, *_: object) -> None:
        """Find no time."""


class DeclinesAppends:
    """In the place of ``FileAppends``: all units are left."""

    def append(self, batch: UnitBatch, held_back: object) -> bytearray:
        """Write nothing; every queue of the batch is left."""
        _ = held_back
        return bytearray(b"\1" * len(batch.queues))


def decline_walks(patch: Any) -> None:
    """Have chains of index files walked in Python; ``patch`` is a ``pytest.MonkeyPatch``."""
    patch.setattr(IndexFile, "walk", _walk)


def _walk(
    file: IndexFile, found: list[int], wanted: int, max_num: int, begin: int, end: int,
    drained: int, *, is_checked: bool,
) -> bool:  # fmt: skip
    """Walk a chain as ``ChainFile.walk``, entry by entry."""
    assert not is_checked
    for index, entry in file._chain(wanted):
        if len(found) >= max_num or entry.time_diff < 0:
            break
        if index >= drained and not file.read_only:
            continue  # drained meanwhile: it was among the pending ones
        stored = file.begin_timestamp + 1000 * (entry.time_diff if index > 1 else 0)
        if entry.key_hash == wanted and begin <= stored <= end:
            found += [entry.phy_offset] if found[-1:] != [entry.phy_offset] else []
        if stored < begin:
            break
    return True
