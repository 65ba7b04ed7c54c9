"""A comparison, from the store to a ``Result``.

Invalid options and stores are refused before anything is created. Then the sides' stores are built
and proved equal, each in its own process, and the workloads are measured on all sides, one after
another. A different answer ends the comparison. The work folder is always removed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np

from cqstore.ab.extras import need_extras
from cqstore.ab.judging.banner import matching
from cqstore.ab.measuring.machine_facts import this_machine
from cqstore.ab.results.result import (
    Answers,
    Cache,
    Difference,
    Method,
    Point,
    Result,
    TraceFacts,
)
from cqstore.ab.results.result import WorkloadFigures as Figures
from cqstore.ab.run.growth import Growth
from cqstore.ab.run.rounds import Effort, Measurement, warm_up_rule
from cqstore.ab.run.run_plan import RunPlan, plan_of
from cqstore.ab.run.unknown_queues import unknown_queues
from cqstore.ab.sides.building import PROOF, Sides
from cqstore.ab.sides.side import SideSpec, default_sides, parse_sides
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.ab.stores.copies import check_room
from cqstore.ab.stores.store_survey import survey
from cqstore.ab.trace.derived import DEFAULT_MIX
from cqstore.ab.trace.operations import MAX_OPERATIONS, Operation, read_trace, trace_lines
from cqstore.ab.workloads import TRACE, chosen, workloads
from cqstore.ab.workloads.base import Setting, Workload
from cqstore.store.errors import StoreConfigError
from cqstore.store.paths import beside
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.settings.config import CQ_UNIT_SIZE, StoreConfig

DERIVED = 20_000
"""Number of operations in a derived trace, which is run repeatedly."""
_KEYS = 1_000
OnStage = Callable[[str, float], object]
"""Called with the current step, and the share of the work that is done."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of ``cqstore ab run``."""

    root: Path
    config: StoreConfig
    sides: Sequence[str] = ()
    """Sides as given; empty: all backends, the store's own first."""
    workloads: Sequence[str] = ()
    trace: Path | None = None
    rate: float | None = None
    speed: float | None = None
    effort: Effort = field(default_factory=lambda: Effort(12, 0.08))
    cache: Cache = Cache.WARM
    seed: int = 1
    work: Path | None = None
    project: int | None = None
    mix: dict[str, int] = field(default_factory=lambda: dict(DEFAULT_MIX))
    readers: int = 3
    matters: Sequence[str] = ()
    """Workloads that decide the recommendation, as given; empty: all."""
    command: Sequence[str] = ()


class Run:
    """One comparison: ``prepare``, then ``measure``."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._began = time.perf_counter()
        self._made = datetime.now(UTC).isoformat(timespec="seconds")
        self._growth = Growth(self._began)
        self._not_measured: list[str] = []
        self._digest, self._operations = sha256(), 0
        self._origin: Literal["derived", "given", "recorded"] = "derived"

    def prepare(self) -> RunPlan:
        """Check the options and the store, and return the plan. Changes nothing.

        Raises:
            StoreError: the comparison is not possible; the message has the reason.
        """
        options = self._options
        self._names = chosen(options.workloads, given_trace=options.trace is not None)
        self._matters = matching(options.matters, self._names)
        resolve_layout(options.root, options.config, read_only=True)  # refuses no store
        need_extras()
        self._given: list[Operation] = []
        if options.trace is not None:
            self._given = self._read_given(options.trace)
        specs = parse_sides(options.sides, options.config) if options.sides else None
        self._found = survey(options.root, options.config, options.seed)
        if self._origin == "recorded":
            self._not_measured += unknown_queues(self._given, self._found)
        given = options.sides or default_sides(self._found.backend)
        specs = specs or parse_sides(given, options.config)
        size = {"mapped_file_size_consume_queue": self._found.units_per_file * CQ_UNIT_SIZE}
        self._specs = [_with_defaults(spec, size) for spec in specs]
        folder = options.work or beside(options.root.absolute(), ".ab")
        self._space = ScratchFolder(folder)
        self._space.check(options.root)
        room = check_room(self._found, folder, len(self._specs))
        return plan_of(
            self._found, self._specs, [self._kinds()[name] for name in self._names],
            options.effort, room, options.project,
        )  # fmt: skip

    def _kinds(self) -> dict[str, Workload]:
        return workloads(self._options.mix)

    def _read_given(self, path: Path) -> list[Operation]:
        """Return the operations of the given trace.

        Raises:
            StoreConfigError: the file is not a trace, or has no times for a replay.
        """
        operations, queries, recorded, missing = read_trace(path)
        self._origin = "recorded" if recorded else "given"
        self._not_measured += [f"In the trace: {sentence}" for sentence in missing]
        if queries:
            self._not_measured.append(
                f"{queries} queries by key in the trace: the index answers them, the same on every"
                " side."
            )
        if len(operations) == MAX_OPERATIONS:
            self._not_measured.append(
                f"Operations after the first {MAX_OPERATIONS:,} of the trace."
            )
        if self._options.speed is not None and not _trace_rate(operations):
            raise StoreConfigError(
                "cannot replay the times of the trace: it has none. Give --rate N, operations per"
                " second",
                path=path,
            )
        return _in_order(operations) if self._options.speed is not None else operations

    def measure(self, on_stage: OnStage = lambda *_: None) -> Result:
        """Build the sides and run all workloads; return the result.

        Raises:
            StoreError: a side failed; the work folder was removed.
        """
        options = self._options
        with (
            self._space,
            Sides(options.root, self._found, self._specs, self._space.folder, options.mix) as sides,
        ):
            differences = sides.build(lambda text: on_stage(text, 0.02))
            figures, points = [_different(differences)] if differences else [], list[Point]()
            if not differences:
                sides.measure_footprints()
                figures += self._workloads(sides, on_stage)
            if options.project is not None and not any(each.answers.different for each in figures):
                points = sides.measure_points(options.project, lambda text: on_stage(text, 0.98))
            return self._result(sides, figures, points)

    def _workloads(self, sides: Sides, on_stage: OnStage) -> Iterator[Figures]:
        """Measure one workload after the other, until an answer differs."""
        for at, name in enumerate(self._names):
            workload = self._kinds()[name]
            share = 0.05 + 0.9 * at / len(self._names)
            on_stage(name, share)
            reason = workload.unsupported_reason(self._found)
            if reason:
                yield Figures(
                    name=name, what=workload.what, item=workload.item, not_measured=reason
                )
                continue
            draw = np.random.default_rng([self._options.seed, at])
            setting = self._setting(name, workload, draw)
            measured = Measurement(
                sides.processes,
                workload,
                setting,
                self._method(),
                self._options.effort,
                draw,
                self._growth.take,
            ).run(partial(on_stage, name, share))
            yield measured
            if measured.answers.different:
                return

    def _setting(self, name: str, workload: Workload, draw: np.random.Generator) -> Setting:
        """Return the setting of a workload for all sides: its trace and some queues."""
        options, found = self._options, self._found
        given = name == TRACE
        operations = self._given if given else workload.derive(found, draw, DERIVED)
        path = None
        if operations:
            path = self._space.folder / f"{name}.jsonl"
            with path.open("wb") as file:
                for line in trace_lines(operations):
                    self._digest.update(line)
                    file.write(line)
            self._operations += len(operations)
        picked = draw.permutation(len(found.keys))[:_KEYS].tolist()
        return Setting(
            trace=path, keys=[tuple(found.keys[at]) for at in picked],
            lengths=(found.high - found.low)[picked].tolist(),
            body_bytes=found.body_bytes, file_size=found.log_file_size,
            min_phy_offset=found.min_phy_offset, max_phy_offset=found.max_phy_offset,
            readers=options.readers,
            rate=options.rate if workload.paced else None,
            speed=options.speed if given else None,
            trace_rate=_trace_rate(operations) if given else 0.0,
        )  # fmt: skip

    def _method(self) -> Method:
        options = self._options
        return Method.today(
            seed=options.seed, rounds=options.effort.rounds, warm_up=warm_up_rule(options.effort),
            cache=options.cache, new_processes=options.effort.new_processes,
        )  # fmt: skip

    def _result(self, sides: Sides, figures: list[Figures], points: list[Point]) -> Result:
        """Return the result: figures, how they were measured, and on what machine."""
        options = self._options
        trace = None
        if self._operations:
            is_open = options.rate is not None or options.speed is not None
            trace = TraceFacts(
                origin=self._origin, operations=self._operations, digest=self._digest.hexdigest(),
                loop="open" if is_open else "closed", rate=options.rate, speed=options.speed,
            )  # fmt: skip
        return Result(
            kind="run", made=self._made, command=list(options.command),
            machine=this_machine(self._space.folder, sides.versions), store=self._found.shape,
            sides=sides.described, method=self._method(), trace=trace, workloads=figures,
            proof=sides.proof, points=points, project_to=options.project,
            samples=self._growth.samples,
            matters=[name for name in self._matters if name in {each.name for each in figures}],
            not_measured=self._not_measured, seconds=time.perf_counter() - self._began,
        )  # fmt: skip


def _different(differences: list[Difference]) -> Figures:
    """Return the figures used instead of workloads if the sides' queues differ."""
    return Figures(
        name=PROOF, what="Compare a queue that was built from the log.", item="units",
        answers=Answers(compared=len(differences), different=len(differences), first=differences),
        not_measured="the queues that the sides built from the log differ",
    )  # fmt: skip


def _with_defaults(spec: SideSpec, size: dict[str, int]) -> SideSpec:
    """Return the side with the file size of the store's queues, where pulls end."""
    if spec.config.model_fields_set >= size.keys():
        return spec
    return replace(spec, config=spec.config.model_copy(update=size))


def _in_order(operations: list[Operation]) -> list[Operation]:
    """Return operations in order of time; one without a time stays after its predecessor."""
    moment, moments = 0.0, []
    for operation in operations:
        moment = operation.at if operation.at is not None else moment
        moments.append(moment)
    return [operations[at] for at in sorted(range(len(operations)), key=moments.__getitem__)]


def _trace_rate(operations: Sequence[Operation]) -> float:
    """Return the operations per second of a trace; 0 if it has no times."""
    moments = [each.at for each in operations if each.at is not None]
    seconds = max(moments, default=0.0) - min(moments, default=0.0)
    return len(moments) / seconds if seconds > 0 else 0.0
