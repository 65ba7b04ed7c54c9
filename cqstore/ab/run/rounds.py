"""Rounds: the turns of one workload, ordered so that drift of the machine does not affect ratios.

The sides run in random order, then in reverse order (ABBA): in the same round if turns are short,
else in the next one. So a drift affects all sides. All sides of a pass run the same operations.
Answers are compared after each pass.

Processes of equal sides differ: where the kernel and the allocator place memory makes one of them
faster for as long as it runs. More turns of the same process do not show that, so a round of short
turns has new processes, which warm up in a pass of their own. See decision 107.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from cqstore.ab.measuring.histograms import histogram
from cqstore.ab.measuring.measures import MachineTimes, disturbance
from cqstore.ab.measuring.turn_order import mirrored_orders
from cqstore.ab.results.result import Answers, Cache, Difference, Method, Round
from cqstore.ab.results.result import WorkloadFigures as Figures
from cqstore.ab.sides.side_process import SideProcess, renew
from cqstore.ab.sides.side_worker import TurnReport
from cqstore.ab.workloads.base import Setting, Workload
from cqstore.store.progress import noop

_WARM_UP = "The first round of a workload does not count."
_RENEWED = "If turns are short, every round has new processes, whose first turn does not count."
_OPEN_SECONDS = 1.0
"""Minimum time of a turn in an open loop, which has few operations per second."""
_CALIBRATED = 256
_SLOW_SECONDS = 0.05
_MAX_SHOWN = 5
"""Maximum number of differences of a workload that are kept in full."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Extent of a measurement: rounds, seconds per turn, and processes."""

    rounds: int
    """Maximum number of rounds per workload, including warm-up."""
    turn_seconds: float
    """Approximate seconds per turn of a workload that scales, averaged over the sides."""
    new_processes: bool = True
    """Whether each round of short turns has new processes."""

    def renews(self, workload: Workload) -> bool:
        """Return whether each round of a workload has new processes."""
        return self.new_processes and workload.passes > 1


class Measurement:
    """One workload, measured on all sides; the reference is the first."""

    def __init__(
        self,
        sides: Sequence[SideProcess],
        workload: Workload,
        setting: Setting,
        method: Method,
        effort: Effort,
        draw: np.random.Generator,
        after_turn: Callable[[SideProcess], object] = noop,
    ) -> None:
        self._sides = sides
        self._after_turn = after_turn
        self._workload = workload
        self._setting = setting
        self._drop = method.cache is Cache.DROPPED
        self._effort = effort
        self._draw = draw
        self._answers = Answers()
        self._turns: list[Round] = []
        self._kept: dict[str, list[TurnReport]] = {side.spec.name: [] for side in sides}
        self._passes = 0

    def run(self, tick: Callable[[], object] = noop) -> Figures:
        """Run all rounds, or until an answer differs; call ``tick`` after each round.

        Raises:
            StoreError: a side failed.
        """
        self._begin()
        count = self._calibrated() if self._workload.scales else self._workload.count
        orders = mirrored_orders(self._sides, self._draw)
        renews = self._effort.renews(self._workload)
        for number in range(rounds_of(self._workload, self._effort)):
            if self._answers.different:
                break
            if renews and number:
                self._renew()
                warming = next(mirrored_orders(self._sides, self._draw))
                self._pass(number, warming, count, warm_up=True)
            for _ in range(self._workload.passes):
                self._pass(number, next(orders), count, warm_up=not number)
            tick()
        self._end()
        return self._figures()

    def _begin(self) -> None:
        for side in self._sides:
            side.request(
                "begin_workload", name=self._workload.name,
                setting=self._setting.model_dump(mode="json"),
            )  # fmt: skip

    def _end(self) -> None:
        for side in self._sides:
            side.request("end_workload")

    def _renew(self) -> None:
        """Continue the workload in a new process of each side."""
        self._end()
        renew(self._sides)
        self._begin()

    def _calibrated(self) -> int:
        """Return the number of operations per turn of this workload."""
        rate = self._setting.offered
        if rate is not None:
            return max(int(max(self._effort.turn_seconds, _OPEN_SECONDS) * rate), 1)
        reports = self._compared(self._sides, 1)
        if max(each.seconds for each in reports.values()) < _SLOW_SECONDS:
            reports = self._compared(self._sides, _CALIBRATED)
        cost = sum(each.seconds / max(each.operations, 1) for each in reports.values())
        return max(int(self._effort.turn_seconds * len(self._sides) / max(cost, 1e-9)), 1)

    def _pass(
        self, number: int, order: Sequence[SideProcess], count: int, *, warm_up: bool
    ) -> None:
        """Run a turn of each side, in ``order``, and compare the answers."""
        pids = [side.pid for side in self._sides]
        reports: dict[str, TurnReport] = {}
        for side in order:
            before = MachineTimes.now(pids)
            found = side.turn(self._passes, count, drop=self._drop)
            steal, others = MachineTimes.now(pids).since(before)
            reports[side.spec.name] = found
            self._turns.append(_round(found, number, len(self._turns), side.spec.name, steal,
                                      others, warm_up=warm_up))  # fmt: skip
            if not warm_up:
                self._kept[side.spec.name].append(found)
            self._after_turn(side)
        self._passes += 1
        self._compare(reports)

    def _compared(self, order: Sequence[SideProcess], count: int) -> dict[str, TurnReport]:
        reports = {side.spec.name: side.turn(self._passes, count, drop=False) for side in order}
        self._passes += 1
        self._compare(reports)
        return reports

    def _compare(self, reports: dict[str, TurnReport]) -> None:
        """Count the compared operations, and find the different answers."""
        reference = self._sides[0]
        mine = reports[reference.spec.name]
        self._answers.compared += mine.answered
        for side in self._sides[1:]:
            other = reports[side.spec.name]
            if other.answers == mine.answers:
                continue
            for block, (one, two) in enumerate(zip_longest(mine.digests, other.digests)):
                if one != two:
                    self._compare_block(block, reference, side)

    def _compare_block(self, block: int, reference: SideProcess, other: SideProcess) -> None:
        """Find the operations of a block with different answers of two sides."""
        mine, theirs = (side.request("answers", block=block) for side in (reference, other))
        for one, two in zip_longest(mine, theirs):
            if one == two:
                continue
            self._answers.different += 1
            if len(self._answers.first) < _MAX_SHOWN:
                operation, _ = one or two
                answers = ["no answer" if each is None else each[1] for each in (one, two)]
                by_side = dict(zip((reference.spec.name, other.spec.name), answers, strict=True))
                self._answers.first.append(
                    Difference(workload=self._workload.name, operation=operation, answers=by_side)
                )

    def _figures(self) -> Figures:
        workload, setting = self._workload, self._setting
        kept = self._kept
        return Figures(
            name=workload.name, what=workload.what, item=workload.item,
            mode="closed" if setting.offered is None else "open", offered=self._offered(),
            rounds=self._turns, answers=self._answers,
            service=_merged({side: [turn.service for turn in kept[side]] for side in kept}),
            intended=_merged({side: [turn.intended for turn in kept[side]] for side in kept}),
        )  # fmt: skip

    def _offered(self) -> float | None:
        """Return the operations per second that were due in the rounds that count."""
        turns = self._kept[self._sides[0].spec.name]
        seconds = sum(turn.due_seconds for turn in turns)
        return sum(turn.operations for turn in turns) / seconds if seconds else None


def warm_up_rule(effort: Effort) -> str:
    """Return which turns do not count."""
    return f"{_WARM_UP} {_RENEWED}" if effort.new_processes else _WARM_UP


def rounds_of(workload: Workload, effort: Effort) -> int:
    """Return the number of rounds of a workload."""
    return min(effort.rounds, workload.max_rounds)


def _round(
    report: TurnReport,
    number: int,
    turn: int,
    side: str,
    steal: float,
    others: float,
    *,
    warm_up: bool,
) -> Round:
    """Return the report of a turn as a ``Round`` of the result."""
    return Round(
        number=number, turn=turn, side=side, warm_up=warm_up,
        operations=report.operations, items=report.items, seconds=report.seconds,
        cpu_seconds=report.cpu_seconds, written_bytes=report.written_bytes,
        read_bytes=report.read_bytes, backend_written=report.backend_written,
        pss_bytes=report.pss_bytes, steal=steal,
        others=others, disturbed=disturbance(steal, others),
        answers=report.answers, service_ns=report.service_ns, intended_ns=report.intended_ns,
    )  # fmt: skip


def _merged(parts: dict[str, list[str]]) -> dict[str, str]:
    """Return one histogram per side, merged from its turns."""
    merged = {}
    for side, texts in parts.items():
        whole = histogram()
        for text in filter(None, texts):
            whole.decode_and_add(text)
        if whole.get_total_count():
            encoded: bytes = whole.encode()
            merged[side] = encoded.decode()
    return merged
