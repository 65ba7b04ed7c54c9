"""Verdicts on the figures of each side, and what counts as a difference.

Three conditions must be true: the interval excludes 1; the ratio exceeds ``min_ratio``; and it
exceeds the noise floor, the difference that a repeat of the reference can show. The intervals are
wide enough that all intervals of a run hold together with the requested confidence: headlines share
half of the error probability, all other figures the other half.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cqstore.ab.judging.intervals import MIN_ROUNDS, MIN_WITHOUT_FLOOR, Interval, centre, interval
from cqstore.ab.judging.judgement import ComparedFigure, Outcome
from cqstore.ab.judging.latencies import merged, withheld
from cqstore.ab.judging.paired_rounds import Pairs, pairs, values
from cqstore.ab.judging.side_figures import FIGURES, NEVER_JUDGED, THROUGHPUT, Figure
from cqstore.ab.results.result import Method, Result, Side, WorkloadFigures

COSTS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu",), "memory": ("memory",), "written": ("written",), "lag": ("service_p50",),
    "disk": ("disk",),
}  # fmt: skip
"""Costs of following a broker or serving clients, each judged like a workload, by its figure."""


class Rule(NamedTuple):
    """Criteria for a figure: noise floor, confidence, minimum of rounds, method."""

    floor: Interval | None
    confidence: float
    minimum: int
    """Minimum number of rounds."""
    method: Method


class Levels(NamedTuple):
    """The confidence of single intervals."""

    headline: float
    further: float


def compared_sides(result: Result) -> list[str]:
    """Return the sides that are compared with the reference, without its twins."""
    return [side.name for side in result.sides[1:] if side.twin_of is None]


def twin(result: Result) -> Side | None:
    """Return the repeat of the reference."""
    name = result.sides[0].name
    return next((side for side in result.sides if side.twin_of == name), None)


def headline(result: Result, workload: WorkloadFigures) -> str:
    """Return the key of the figure that is shown first.

    The throughput in a closed loop. If the side does not determine the rate, p99: in an open loop
    from the due time, for reads of a running store the service time. For followers of a broker
    and servers of clients, the figure of the cost.
    """
    names = [result.sides[0].name, *compared_sides(result)]
    return next(
        (
            key
            for key in _first_choices(result, workload, names)
            if all(pairs(workload, FIGURES[key], side, names[0]).ratios for side in names[1:])
        ),
        THROUGHPUT,
    )


def _first_choices(result: Result, workload: WorkloadFigures, names: list[str]) -> tuple[str, ...]:
    if result.kind in {"follow", "clients"}:
        return COSTS.get(workload.name, ())
    if result.kind == "live":
        return "service_p99", "service_p50"
    if workload.mode == "open" and not any(withheld(workload, name) for name in names):
        return ("intended_p99",)
    return ()


def levels(result: Result) -> Levels:
    """Return the confidence of single intervals for which all intervals hold together."""
    counts = {True: 0, False: 0}
    for workload in result.workloads:
        first = headline(result, workload)
        for key, figure in FIGURES.items():
            for side in compared_sides(result):
                found = pairs(workload, figure, side, result.sides[0].name)
                counts[key == first] += key not in NEVER_JUDGED and bool(found.ratios)
    wrong = (1 - result.method.confidence) / 2
    return Levels(*(1 - wrong / max(1, counts[kind]) for kind in (True, False)))


def compare(result: Result, workload: WorkloadFigures, given: Levels) -> Iterator[ComparedFigure]:
    """Yield every figure of every side except the reference; for each figure the twin first."""
    reference = result.sides[0].name
    first = headline(result, workload)
    repeat = twin(result)
    for key, figure in FIGURES.items():
        floor = None
        if repeat is not None:
            found = pairs(workload, figure, repeat.name, reference)
            floor = _interval(found, result.method.confidence, MIN_ROUNDS)
            if floor is not None:
                yield _values(workload, figure, repeat.name, reference, found).model_copy(
                    update=_ends(floor) | {"outcome": Outcome.FLOOR, "floor": floor.farthest}
                )
        rule = Rule(
            floor, given.headline if key == first else given.further,
            MIN_WITHOUT_FLOOR if repeat is None else MIN_ROUNDS, result.method,
        )  # fmt: skip
        for side in compared_sides(result):
            found = pairs(workload, figure, side, reference)
            compared = _values(workload, figure, side, reference, found)
            if compared.value or compared.reference or compared.why:
                yield _judged(workload, compared, found, rule)


def decide(found: Interval, floor: Interval | None, method: Method) -> Outcome | None:
    """Return ``SAME`` or ``NOISY``, or ``None`` if there is a difference.

    The interval of a difference may be wider than the method's maximum if even the end that is
    closer to 1 exceeds the noise.
    """
    minimum = max(method.min_ratio, floor.farthest if floor is not None else 1.0)
    near = max(found.low, 1 / found.high)
    beyond = max(found.ratio, 1 / found.ratio) > minimum
    if near > 1 and beyond and (found.width <= method.max_width or near > minimum):
        return None
    widths = [each.width for each in (found, floor) if each is not None]
    return Outcome.NOISY if max(widths) > method.max_width else Outcome.SAME


def _judged(
    workload: WorkloadFigures, compared: ComparedFigure, found: Pairs, rule: Rule
) -> ComparedFigure:
    """Return a figure with its interval and outcome, or the reason why it has none."""
    if compared.outcome is Outcome.WITHHELD:
        return compared
    if compared.figure in NEVER_JUDGED:
        return compared.model_copy(update={"why": NEVER_JUDGED[compared.figure]})
    made = _interval(found, rule.confidence, rule.minimum)
    if made is None:
        return compared.model_copy(update=_why_not(workload, compared, found, rule.minimum))
    outcome = decide(made, rule.floor, rule.method)
    if outcome is None:
        more = FIGURES[compared.figure].more_is_better
        outcome = Outcome.BETTER if (made.ratio > 1) is more else Outcome.WORSE
    floor = rule.floor.farthest if rule.floor is not None else None
    return compared.model_copy(update=_ends(made) | {"outcome": outcome, "floor": floor})


def _why_not(
    workload: WorkloadFigures, compared: ComparedFigure, found: Pairs, minimum: int
) -> dict[str, object]:
    """Return the reason why there is no interval."""
    if not found.mine:
        few = FIGURES[compared.figure].lacks if workload.rounds else "not measured in rounds"
        return {"why": few}
    if not found.ratios:
        return {"why": "one value is zero, so there is no ratio"}
    return {
        "outcome": Outcome.FEW,
        "why": f"{len(found.mine)} rounds, an interval requires {minimum}",
    }


def _interval(found: Pairs, confidence: float, minimum: int) -> Interval | None:
    ratios = found.ratios
    return interval(ratios, confidence) if len(ratios) >= minimum else None


def _ends(found: Interval) -> dict[str, object]:
    return {"ratio": found.ratio, "low": found.low, "high": found.high}


def _values(
    workload: WorkloadFigures, figure: Figure, side: str, reference: str, found: Pairs
) -> ComparedFigure:
    """Return the values of both sides, not judged."""
    late = figure.key.startswith("intended")
    values = [
        None if late and withheld(workload, each) else _value(workload, figure, each, by_round)
        for each, by_round in ((side, found.mine), (reference, found.theirs))
    ]
    why = "; ".join(filter(None, (withheld(workload, each) for each in (side, reference))))
    return ComparedFigure(
        side=side, figure=figure.key, label=figure.label, unit=figure.unit,
        value=values[0], reference=values[1],
        rounds=len(found.mine), left_out=found.left_out,
        outcome=Outcome.WITHHELD if late and why else Outcome.SHOWN,
        why=why if late else "",
    )  # fmt: skip


def _value(
    workload: WorkloadFigures, figure: Figure, side: str, by_round: list[float]
) -> float | None:
    """Return a side's value: latencies over all operations, other figures over rounds."""
    if figure.key.startswith(("service", "intended")):
        over_all = merged(workload, side, figure.key)
        if over_all is not None:
            return over_all
    by_round = by_round or values(workload, figure, side)
    if not by_round:
        return None
    return centre(by_round) if all(by_round) else sum(by_round) / len(by_round)
