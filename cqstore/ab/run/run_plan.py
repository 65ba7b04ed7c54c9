"""The plan of a comparison and its estimated duration, shown before it begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from cqstore.ab.run.rounds import Effort, rounds_of
from cqstore.ab.sides.side import SideSpec
from cqstore.ab.stores.projected_points import points, units_a_queue
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.ab.workloads.base import Workload

_BUILT_UNITS = 150_000
"""Units per second that are replayed, flushed and read again for the digest."""
_COPIED_BYTES = 500e6
_COPIED_QUEUES = 4_000
"""Queue folders copied per second."""
_PUT_UNITS = 40_000
_UNTIMED = 1.7
"""Total time of a turn relative to its timed part: answers are written and compared."""
_START_SECONDS = 1.0
_LISTED_QUEUES = 300_000


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a comparison, with estimated duration."""

    sides: list[str]
    workloads: list[str]
    left_out: dict[str, str]
    """Workloads that the store does not support, with the reason."""
    rounds: int
    seconds: float
    """Estimated duration on two cores."""
    room_bytes: int
    """Maximum temporary disk space."""


def plan_of(
    found: StoreSurvey,
    specs: Sequence[SideSpec],
    requested: Sequence[Workload],
    effort: Effort,
    room_bytes: int,
    project: int | None,
) -> RunPlan:
    """Return the plan for a store that was surveyed."""
    left_out = {
        each.name: reason for each in requested if (reason := each.unsupported_reason(found))
    }
    runs = [each for each in requested if each.name not in left_out]
    shape, sides = found.shape, len(specs)
    seconds = sides * (3 * _START_SECONDS + shape.units / _BUILT_UNITS)
    seconds += sides * found.log_file_size / 2 / _COPIED_BYTES
    for workload in runs:
        rounds, turns = rounds_of(workload, effort), workload.passes
        if effort.renews(workload):
            turns += 1
            seconds += rounds * sides * (_START_SECONDS / 2 + _open_seconds(found))
        seconds += 0.5 + rounds * sides * turns * _turn_seconds(workload, found, effort)
    if project is not None:
        units = units_a_queue(shape.units, shape.queues) * sum(points(project, shape.queues))
        seconds += (sides - 1) * (units / _PUT_UNITS + 6 * _START_SECONDS)
    return RunPlan(
        [spec.name for spec in specs], [each.name for each in runs], left_out, effort.rounds,
        seconds, room_bytes,
    )  # fmt: skip


def _turn_seconds(workload: Workload, found: StoreSurvey, effort: Effort) -> float:
    """Return the estimated total time of a turn, including untimed work."""
    if workload.scales:
        minimum = found.shape.queues / _LISTED_QUEUES if workload.name == "list-all" else 0.0
        return max(effort.turn_seconds, minimum) * _UNTIMED
    copied = found.shape.queues / _COPIED_QUEUES + found.log_file_size / 4 / _COPIED_BYTES
    opened = _open_seconds(found)
    return {
        "dispatch": 1.0,
        "restart": workload.count * 2 * opened,
        "restart-after-kill": _START_SECONDS + 5 * opened,
        "expiry": copied + 3 * opened + found.log_file_size / _COPIED_BYTES,
    }.get(workload.name, 0.5)


def _open_seconds(found: StoreSurvey) -> float:
    return 0.02 + found.shape.queues / 60_000
