"""Progress of a migration, read from its workspace."""

from enum import StrEnum
from pathlib import Path

from cqstore.migration.plan.plan import Plan, read_plan
from cqstore.migration.run.segment import segments_of
from cqstore.migration.switch.metadata_steps import last_conversion
from cqstore.migration.workspace import Workspace
from cqstore.store.path_kind import exists


class Stage(StrEnum):
    """Stage of a migration; each stage includes the earlier ones."""

    NOTHING = "nothing"
    PLANNED = "planned"
    RUNNING = "running"
    """Some segments have been moved."""
    MADE = "made"
    """The new queues are complete."""
    SWITCHED = "switched"
    """The new queues are in the store."""


def stage_of(space: Workspace, plan: Plan | None) -> Stage:
    """Return the stage of the migration in ``space``."""
    if plan is None:
        return Stage.NOTHING
    if exists(space.switched):
        return Stage.SWITCHED
    if exists(space.made.root):
        return Stage.MADE
    moved = segments_of(space, plan).finished(len(plan.segments))
    return Stage.RUNNING if moved else Stage.PLANNED


def status(root: Path, workspace: Workspace | None = None) -> dict[str, object]:
    """Return the progress of the migration of the store in ``root``. Changes nothing.

    Raises:
        CorruptionError, UnsupportedFormatError: the plan cannot be read.
    """
    space = workspace or Workspace.of(root.absolute())
    plan = read_plan(space) if exists(space.plan) else None
    stage = stage_of(space, plan)
    facts: dict[str, object] = {"stage": str(stage), "workspace": str(space.root)}
    if plan is not None:
        segments = segments_of(space, plan)
        done, reported = segments.finished(len(plan.segments)), segments.units_done()
        facts |= {
            "store": plan.store,
            "from": plan.source,
            "to": plan.target,
            "plan": plan.digest,
            "planned": plan.created,
            "queues": plan.queues,
            "units": plan.units,
            "segments": len(plan.segments),
            "segmentsMoved": len(done),
            "unitsMoved": sum(each.units for each in done.values())
            + sum(units for number, units in reported.items() if number not in done),
            "completeTo": plan.complete_to,
            "topics": plan.topics,
            "leftTopics": plan.left,
        }
    if tables := last_conversion(space):
        facts["tables"] = {name: tables[name] for name in tables if name != "at"}
    history = space.history()
    if history:
        last = history[-1]
        facts["lastStep"] = f"{last['step']} at {last['at']}"
    return facts
