"""Two logs byte by byte: up to where they are the same, in whole records.

A log's bytes say where each record lies and when it was stored, so what is the same to its bytes is
the same log. Blank records count whole, for a follower compares what is behind their heads too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.progress import Progress, noop
from cqstore.store.record.scan import ScanRules

_BLOCK_BYTES = 4 << 20
_WORD = np.dtype(np.uint64)
_SIZES = ScanRules(check_crc=False)


@dataclass(frozen=True, slots=True)
class Common:
    """What two logs have in common, phy offsets."""

    compared: range
    """The bytes that both have; empty: there are none."""
    differs_at: int | None
    """The first byte that differs; ``None``: none does."""
    end: int
    """Behind the last record that is the same in both, all before it being the same, too."""

    @property
    def is_empty(self) -> bool:
        """Return whether no record is known to be the same."""
        return self.end <= self.compared.start


def span(log: CommitLog) -> range:
    """Return the phy offsets of the bytes that ``log`` has."""
    begin = max(log.min_phy_offset(), 0)
    return range(begin, max(log.max_phy_offset(), begin))


def compare_logs(one: CommitLog, other: CommitLog, progress: Progress = noop) -> Common:
    """Compare what both have, from its begin to the first byte that differs.

    Neither is changed. ``progress`` is called with phy offsets.

    Raises:
        CorruptionError, StoreIOError: a file has shrunk, or cannot be read.
    """
    first, second = span(one), span(other)
    both = range(max(first.start, second.start), min(first.stop, second.stop))
    if not both:
        return Common(range(both.start, both.start), None, both.start)
    differs_at = _first_difference(one, other, both, progress)
    end = both.stop if differs_at is None else _boundary(one, both.start, differs_at)
    return Common(both, differs_at, end)


def _first_difference(
    one: CommitLog, other: CommitLog, both: range, progress: Progress
) -> int | None:
    """Return the first phy offset at which two logs differ; ``None``: they do not."""
    for part in parts(one, other, both):
        progress(part.start)
        mine, others = one.view(part.start, len(part)), other.view(part.start, len(part))
        if not are_same(mine, others):
            unlike = np.frombuffer(mine, np.uint8) != np.frombuffer(others, np.uint8)
            return part.start + int(unlike.argmax())
    return None


def parts(one: CommitLog, other: CommitLog, both: range) -> Iterator[range]:
    """Yield runs of bytes, none across the end of a file of either log."""
    at = both.start
    while at < both.stop:
        left = (size - at % size for size in (one.files.file_size, other.files.file_size))
        end = min(at + _BLOCK_BYTES, both.stop, *(at + each for each in left))
        yield range(at, end)
        at = end


def are_same(mine: memoryview, others: memoryview) -> bool:
    """Compare two runs of one length: words first, which is twice as fast as bytes."""
    words = len(mine) // _WORD.itemsize
    whole = words * _WORD.itemsize
    return np.array_equal(
        np.frombuffer(mine, _WORD, words), np.frombuffer(others, _WORD, words)
    ) and bytes(mine[whole:]) == bytes(others[whole:])


def _boundary(log: CommitLog, low: int, differs_at: int) -> int:
    """Return where the record begins that has the byte at ``differs_at``.

    Up to there the bytes are the same in both logs, and so are the records. Where they are no
    records the boundary lies before.
    """
    file_size = log.files.file_size
    begin = max(low, differs_at - differs_at % file_size)
    end = begin
    blanks: list[tuple[int, int]] = []
    try:
        for record in log.scan(begin, differs_at, _SIZES, blanks):
            behind = record.phy_offset + record.size
            if behind > differs_at:
                return record.phy_offset
            end = behind
    except CorruptionError:
        return end
    return blanks[-1][0] if blanks else end
