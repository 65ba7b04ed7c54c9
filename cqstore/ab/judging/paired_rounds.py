"""Paired rounds of two sides, and which of them count.

Warm-up turns never count. A round in which either side was disturbed by other guests or other
processes is excluded from the ratios; this depends only on the machine, never on the results of the
round. If fewer than half of the rounds, or fewer than an interval requires, would remain, all of
them count, and the interval shows the noise.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cqstore.ab.judging.intervals import MIN_ROUNDS
from cqstore.ab.judging.side_figures import Figure
from cqstore.ab.results.result import Round, WorkloadFigures


class Pairs(NamedTuple):
    """A figure of two sides by round; ``mine[i]`` and ``theirs[i]`` are of the same round."""

    mine: list[float]
    theirs: list[float]
    left_out: int
    """Number of disturbed rounds that are excluded."""
    disturbed: int
    """Number of disturbed rounds that count, because too few would remain."""

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of each round; empty if a value is zero."""
        if 0 in self.mine or 0 in self.theirs:
            return []
        return [mine / theirs for mine, theirs in zip(self.mine, self.theirs, strict=True)]


def turns_of(workload: WorkloadFigures, side: str) -> dict[int, list[Round]]:
    """Return a side's turns by round, without warm-up."""
    found: dict[int, list[Round]] = {}
    for turn in workload.rounds:
        if turn.side == side and not turn.warm_up:
            found.setdefault(turn.number, []).append(turn)
    return found


def pairs(workload: WorkloadFigures, figure: Figure, side: str, reference: str) -> Pairs:
    """Return the figure of both sides in the rounds that count; empty if a round lacks it."""
    mine, theirs = turns_of(workload, side), turns_of(workload, reference)
    numbers = sorted(mine.keys() & theirs.keys())
    calm = [number for number in numbers if not _is_disturbed(number, mine, theirs)]
    used = calm if len(calm) >= max(MIN_ROUNDS, len(numbers) / 2) else numbers
    ours, others = (_values(figure, turns, used) for turns in (mine, theirs))
    if not ours or not others:
        return Pairs([], [], 0, 0)
    return Pairs(ours, others, len(numbers) - len(used), len(used) - len(calm))


def written_by_cause(workload: WorkloadFigures) -> dict[str, dict[str, int]]:
    """Return side → cause → bytes for backends that count their writes; without warm-up."""
    found: dict[str, Counter[str]] = {}
    for turn in workload.rounds:
        if turn.backend_written and not turn.warm_up:
            found.setdefault(turn.side, Counter()).update(turn.backend_written)
    return {side: dict(causes) for side, causes in found.items()}


def values(workload: WorkloadFigures, figure: Figure, side: str) -> list[float]:
    """Return a figure of one side in the rounds that count; empty if a round lacks it."""
    return pairs(workload, figure, side, side).mine


def _is_disturbed(number: int, *sides: Mapping[int, Sequence[Round]]) -> bool:
    return any(turn.disturbed for turns in sides for turn in turns[number])


def _values(
    figure: Figure, turns: Mapping[int, Sequence[Round]], numbers: Sequence[int]
) -> list[float]:
    found = [figure.of(turns[number]) for number in numbers]
    there = [value for value in found if value is not None]
    return there if len(there) == len(found) else []
