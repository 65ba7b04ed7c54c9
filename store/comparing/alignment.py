"""Alignment: the runs of a queue on both sides, split so that each part is on both or one."""

from collections.abc import Iterator
from typing import NamedTuple

from cqstore.store.queue.bulk import UnitRows, UnitRun


class Stretch(NamedTuple):
    """Units from ``queue_offset`` on that both sides have, or only one side."""

    queue_offset: int
    source: UnitRows | None
    target: UnitRows | None


def align(source: Iterator[UnitRun], target: Iterator[UnitRun]) -> Iterator[Stretch]:
    """Yield stretches in the order of queue offsets; the work is per run, not per unit."""
    left, right = next(source, None), next(target, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.queue_offset < right.queue_offset):
            assert left is not None
            count = len(left.rows)
            if right is not None:
                count = min(count, right.queue_offset - left.queue_offset)
            yield Stretch(left.queue_offset, left.rows[:count], None)
            left = _rest(left, count, source)
        elif left is None or right.queue_offset < left.queue_offset:
            count = len(right.rows)
            if left is not None:
                count = min(count, left.queue_offset - right.queue_offset)
            yield Stretch(right.queue_offset, None, right.rows[:count])
            right = _rest(right, count, target)
        else:
            count = min(len(left.rows), len(right.rows))
            yield Stretch(left.queue_offset, left.rows[:count], right.rows[:count])
            left = _rest(left, count, source)
            right = _rest(right, count, target)


def _rest(run: UnitRun, count: int, runs: Iterator[UnitRun]) -> UnitRun | None:
    if count < len(run.rows):
        return UnitRun(run.queue_offset + count, run.rows[count:])
    return next(runs, None)
