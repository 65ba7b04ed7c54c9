"""FollowCosts: what each side uses per round while all of them follow one master.

A round is a part of the time. The sides follow the same stream at the same time, so whatever
disturbs the machine concerns all of them. Each cost is a workload, and so is judged by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import quantiles

from cqstore.ab.live.follower_worker import Usage
from cqstore.ab.results.result import Answers, Round, Sample, WorkloadFigures

WHAT = {
    "cpu": "CPU time of the side's process per record: receive it, append it, build its queues.",
    "memory": "Largest proportional set size of the side's process.",
    "written": "Bytes written per record: log, queues and journals.",
    "lag": "Age of a side's newest record, by the clocks of both machines.",
}
_NS = 1_000_000
_TAIL_SAMPLES = 100


@dataclass(slots=True)
class _SideTotals:
    """One side in the current round."""

    first: Usage
    last: Usage
    peak: int = 0
    lags: list[int] = field(default_factory=list)
    """Nanoseconds, one per sample in which the side had received something."""


class FollowCosts:
    """Collects the usage of all sides, round by round."""

    def __init__(self) -> None:
        self._totals: dict[str, _SideTotals] = {}
        self._rounds: dict[str, list[Round]] = {name: [] for name in WHAT}
        self.samples: list[Sample] = []
        self.rounds = 0
        """Number of complete rounds; the first one does not count."""

    def begin(self, usages: Mapping[str, Usage]) -> None:
        """Begin a round with the usage of each side."""
        self._totals = {name: _SideTotals(usage, usage) for name, usage in usages.items()}

    def add(self, usages: Mapping[str, Usage], at: float) -> None:
        """Add a sample of all sides, ``at`` seconds after the start of the run."""
        for name, usage in usages.items():
            totals = self._totals[name]
            if usage.records > totals.last.records:
                totals.lags.append(max(usage.now_ms - usage.newest_ms, 1) * _NS)
            totals.peak = max(totals.peak, usage.pss_bytes)
            totals.last = usage
            self.samples.append(
                Sample(side=name, at=at, pss_bytes=usage.pss_bytes, disk_bytes=usage.disk_bytes)
            )

    def end(self) -> None:
        """End the round; a cost that a side lacks in it is left out for all sides."""
        for cost, rounds in self._rounds.items():
            made = {name: _fields(cost, totals) for name, totals in self._totals.items()}
            if all(made.values()):
                for name, fields in made.items():
                    rounds.append(cost_round(self.rounds, len(rounds), name, fields))
        self.rounds += 1

    def workloads(self, answers: Answers) -> Iterator[WorkloadFigures]:
        """Yield the figures of each cost; ``answers`` are given with the first one."""
        for number, (cost, rounds) in enumerate(self._rounds.items()):
            yield WorkloadFigures(
                name=cost, what=WHAT[cost], item="records", rounds=rounds,
                answers=Answers() if number else answers,
                not_measured="" if rounds else "no round in which each side received a record",
            )  # fmt: skip


def _fields(cost: str, totals: _SideTotals) -> dict[str, object]:
    """Return the fields of a round for one cost; empty if there is no value."""
    first, last = totals.first, totals.last
    records = last.records - first.records
    if cost == "memory":
        return {"pss_bytes": totals.peak} if totals.peak else {}
    if not records:
        return {}
    if cost == "cpu":
        return {"operations": records, "cpu_seconds": last.cpu_seconds - first.cpu_seconds}
    if cost == "written":
        return {
            "items": records,
            "written_bytes": last.written_bytes - first.written_bytes,
            "read_bytes": last.read_bytes - first.read_bytes,
            "backend_written": {
                cause: written - first.backend_written.get(cause, 0)
                for cause, written in last.backend_written.items()
            },
        }
    found = _percentiles(totals.lags)
    return {"operations": len(totals.lags), "service_ns": found} if found else {}


def _percentiles(lags: list[int]) -> dict[str, int]:
    """Return p50 and max, and p99 of a hundred samples or more."""
    if len(lags) < 2:  # noqa: PLR2004 - the number of points that a percentile needs
        return {}
    cuts = quantiles(lags, n=100, method="inclusive")
    found = {"p50": round(cuts[49]), "max": max(lags)}
    return found | ({"p99": round(cuts[98])} if len(lags) >= _TAIL_SAMPLES else {})


def cost_round(number: int, turn: int, side: str, fields: Mapping[str, object]) -> Round:
    """Return a round of a cost with some fields of ``Round``; the first round does not count."""
    none: dict[str, object] = dict.fromkeys(
        ("operations", "items", "seconds", "cpu_seconds", "written_bytes", "read_bytes",
         "pss_bytes", "steal", "others"), 0,
    )  # fmt: skip
    given = {"number": number, "turn": turn, "side": side, "warm_up": number == 0, "answers": ""}
    return Round.model_validate(none | given | dict(fields))
