"""Results as a real run gives them, made from a seed: what each side truly is, is known here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from hdrh.histogram import HdrHistogram

from cqstore.ab.results.result import (
    Answers,
    Cache,
    Footprint,
    Machine,
    Method,
    Point,
    Result,
    Round,
    Shape,
    Side,
    TraceFacts,
    WorkloadFigures,
)

WORKLOADS = {
    "dispatch": ("Put one unit into its queue.", 250_000.0, 20_000),
    "tail-pull": ("Pull up to 32 messages from the end of a queue.", 21_000.0, 5_000),
    "catch-up-pull": ("one pull of 32 messages, queue after queue", 9_000.0, 3_000),
    "random-pull": ("one pull of 32 messages from anywhere", 7_500.0, 3_000),
    "tag-pull": ("one pull with a tag that one message in a hundred has", 900.0, 400),
    "time-search": ("the offset of a queue at a time", 30_000.0, 8_000),
    "lag-estimate": ("how many messages of a tag a group has to come", 4_000.0, 1_500),
    "min-max-offset": ("the first and the last offset of a queue", 400_000.0, 40_000),
    "listing": ("all queues, once", 12.0, 6),
    "topic-create": ("a topic with eight queues and a message each", 350.0, 200),
    "topic-delete": ("a topic with eight queues is deleted", 280.0, 200),
    "restart": ("the store is closed and opened again", 2.4, 1),
}
"""Name → what an operation is, operations a second of the reference, operations a turn."""


@dataclass(frozen=True)
class Truth:
    """What the sides are, and how the machine behaves."""

    speed: Mapping[str, float] = field(default_factory=dict)
    """Of a side by name, as a multiple of the reference; 1 if it is not there."""
    at: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The same of (side, workload), where it differs."""
    noise: float = 0.03
    """Standard deviation of a turn's time, as a share; with heavy tails."""
    drift: float = 0.05
    """How far the machine wanders from round to round, for all sides alike."""
    rounds: int = 10
    warm_up: int = 1
    turns: int = 2
    spoilt: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """(side, round) → how many times longer it took, unmarked."""
    disturbed: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """The same, and marked as disturbed."""

    def of(self, side: str, workload: str) -> float:
        """Return the true speed of a side, by the reference's."""
        return self.at.get((side, workload), self.speed.get(side, 1.0))


def made_result(
    seed: int = 0,
    truth: Truth = Truth(),
    *,
    sides: Sequence[str] = ("files", "rocksdb"),
    workloads: Sequence[str] = tuple(WORKLOADS),
    twin: bool = True,
    histograms: bool = True,
    project_to: int | None = None,
) -> Result:
    """Return a result; the first of ``sides`` is the reference, its twin ``<it>-again``."""
    rng = np.random.default_rng(seed)
    made = [made_side(name, place) for place, name in enumerate(sides)]
    if twin:
        made.append(made_side(f"{sides[0]}-again", 0).model_copy(update={"twin_of": sides[0]}))
    names = [side.name for side in made]
    return Result(
        kind="run",
        made="2026-11-22T09:40:12Z",
        command=["cqstore", "ab", "run", "/data/store", "--side", sides[0], "--side", sides[-1]],
        machine=made_machine(),
        store=made_shape(),
        sides=made,
        method=made_method(seed, truth),
        trace=TraceFacts(origin="derived", operations=1_204_000, digest="5e" * 32, loop="closed"),
        workloads=[
            made_workload(rng, truth, name, names, histograms=histograms) for name in workloads
        ],
        points=[point for name in sides for point in made_points(name, sides)],
        project_to=project_to,
        not_measured=["Reads from a disk that is slower than this one's page cache."],
        seconds=281.4,
    )


def made_workload(
    rng: np.random.Generator,
    truth: Truth,
    name: str,
    sides: Sequence[str],
    *,
    histograms: bool = True,
) -> WorkloadFigures:
    """Return a workload of a closed loop with its turns, in ABBA order."""
    what, rate, operations = WORKLOADS[name]
    rounds, place = list[Round](), 0
    for number in range(truth.warm_up + truth.rounds):
        pace = float(np.exp(rng.normal(0, truth.drift)))
        order = list(rng.permutation(sides))
        for turn in range(truth.turns):
            for side in order if turn % 2 == 0 else reversed(order):
                key = (side, number - truth.warm_up)
                spoilt = truth.spoilt.get(key, 1.0) * truth.disturbed.get(key, 1.0)
                slow = (
                    pace * spoilt * float(np.exp(truth.noise * _heavy(rng))) / truth.of(side, name)
                )
                seconds = operations / rate * slow
                rounds.append(
                    Round(
                        number=number, turn=place, side=side, warm_up=number < truth.warm_up,
                        operations=operations, items=operations * 8,
                        seconds=seconds * (1.6 if number < truth.warm_up else 1),
                        cpu_seconds=seconds * 0.93 * float(np.exp(rng.normal(0, 0.01))),
                        written_bytes=operations * 640 if name == "dispatch" else 0,
                        read_bytes=0,
                        pss_bytes=round(2.2e8 * float(np.exp(rng.normal(0, 0.01)))),
                        steal=0.001 * float(rng.random()), others=0.04 * float(rng.random()),
                        service_ns=_percentiles(rng, 1e9 / rate * slow),
                        disturbed="steal 21 %" if key in truth.disturbed else "",
                        answers=f"{name}-{number}",
                    )
                )  # fmt: skip
                place += 1
    return WorkloadFigures(
        name=name, what=what, item="messages", rounds=rounds,
        service={
            side: made_histogram(rng, 1e9 / rate / truth.of(side, name), min(operations, 4_000))
            for side in sides
        } if histograms else {},
        answers=Answers(compared=max(1_000, operations * truth.rounds)),
    )  # fmt: skip


def made_histogram(rng: np.random.Generator, mean_ns: float, operations: int) -> str:
    """Return a histogram of latencies as they are: a body, a tail, a few stalls."""
    values = mean_ns * np.exp(rng.normal(-0.08, 0.3, operations))
    values = np.where(
        rng.random(operations) < 0.004, values * rng.uniform(5, 40, operations), values
    )
    found = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in zip(*np.unique(values.astype(np.int64), return_counts=True), strict=True):
        found.record_value(max(1, int(value)), int(count))
    text: bytes = found.encode()
    return text.decode()


def made_footprint(side: int, queues: int, units: int) -> Footprint:
    """Return what queue files (0) or a RocksDB (1) take."""
    if side == 0:
        return Footprint(
            disk_bytes=queues * 4096 + units * 20, files=queues, maps=queues + 60,
            descriptors=queues + 40, pss_bytes=90_000_000 + queues * 1_900,
            open_seconds=0.2 + queues * 6e-5,
        )  # fmt: skip
    return Footprint(
        disk_bytes=units * 9 + 600_000, files=14, maps=75, descriptors=31,
        pss_bytes=130_000_000 + queues * 210, open_seconds=0.11 + queues * 2e-7,
    )  # fmt: skip


def made_side(name: str, place: int) -> Side:
    """Return a side; the first has queue files, others a RocksDB."""
    return Side(
        name=name, given=name, backend=("file", "rocksdb")[min(place, 1)],
        options={"block_size": "4096"} if place > 1 else {},
        log_shared_by="hard links", build_seconds=4.1 + place,
        footprint=made_footprint(min(place, 1), 2_000, 1_000_000),
    )  # fmt: skip


def made_points(name: str, sides: Sequence[str]) -> list[Point]:
    """Return a side's cost at three numbers of queues."""
    place = min(sides.index(name), 1)
    return [
        Point(side=name, queues=n, units=n * 20, footprint=made_footprint(place, n, n * 20))
        for n in (500, 2_000, 8_000)
    ]


def made_method(seed: int, truth: Truth) -> Method:
    """Return the method as a run by default has it."""
    return Method(
        seed=seed, rounds=truth.rounds + truth.warm_up,
        warm_up="The first round of each workload is dropped.", new_processes=True,
        cache=Cache.WARM, confidence=0.95, min_compared=1_000, max_width=1.5, min_ratio=1.05,
    )  # fmt: skip


def made_machine() -> Machine:
    """Return a machine."""
    return Machine(
        name="broker-3", processor="AMD EPYC 7B13", cores=2, memory_bytes=8 << 30,
        kernel="Linux 6.1.0-28-amd64", file_system="ext4", mount_options="rw,relatime,discard",
        disk="nvme0n1, not rotating",
        versions={"python": "3.11.7", "cqstore": "0.1.0", "rocksdb": "9.8.4"},
    )  # fmt: skip


def made_shape() -> Shape:
    """Return a store of a million units in two thousand queues, a few of them hot."""
    return Shape(
        root="/data/store", topics=250, queues=2_000, units=1_000_000, log_bytes=1_100_000_000,
        log_files=2, units_of_queue={"min": 0, "p50": 31, "p90": 790, "p99": 8_800, "max": 41_000},
        share_of_hottest={"1": 0.34, "10": 0.81},
    )  # fmt: skip


def _heavy(rng: np.random.Generator) -> float:
    """Return noise of unit variance that goes far more often than the normal law lets it."""
    return float(rng.standard_t(4)) / 2**0.5


def _percentiles(rng: np.random.Generator, mean_ns: float) -> dict[str, int]:
    shares = {"p50": 0.9, "p99": 2.1, "p99.9": 6.0, "max": 21.0}
    spread = {"p50": 0.01, "p99": 0.05, "p99.9": 0.12, "max": 0.5}
    return {
        key: round(mean_ns * share * float(np.exp(spread[key] * _heavy(rng))))
        for key, share in shares.items()
    }
