"""Run a plan: its segments as tasks, then assemble the new queues from their files.

After an interruption, the next run continues: segments with a marker are not moved again. The store
is not changed; the new queues stay in the workspace until they are verified and switched to.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cqstore.migration.plan.log_identity import log_identity
from cqstore.migration.plan.plan import PLAN_AGAIN, Plan, read_plan, refuse_switched
from cqstore.migration.run.segment import segments_of, write_segment
from cqstore.migration.tasks import MASTER, NO_SPARK, check_master, ready, run_tasks
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import DiskFullError, RefusedStoreError, os_errors
from cqstore.store.files import sync_folder
from cqstore.store.path_kind import exists
from cqstore.store.queue.bulk import UNIT_ROWS, bulk_backend
from cqstore.store.settings.config import StoreConfig


@dataclass(slots=True)
class RunReport:
    """Result of one run of a plan."""

    plan: str
    """Digest of the plan."""
    segments: int
    moved: int
    """Segments that this run moved; earlier runs moved the others."""
    units: int
    queues: int
    bytes: int
    shifted: int
    """Units with another queue offset than their record; the queue offset of the unit is kept."""
    shifted_queues: list[str]
    seconds: float
    """Duration of this run in seconds, without the start of Spark."""


def run_plan(
    root: Path, *, workspace: Workspace | None = None, master: str = MASTER,
    bytes_per_second: float | None = None,
    progress: Callable[[int, int], object] = lambda done, units: None,
    timestamps: bool = True, config: StoreConfig | None = None,
) -> RunReport:  # fmt: skip
    """Build the queues of the plan of the store in ``root``, in the workspace.

    Segments that an earlier run has moved are not moved again. ``progress`` is called with the
    numbers of moved and of planned units. All tasks share ``bytes_per_second``. The plan contains
    the settings; a ``config`` with other settings is refused. Without ``timestamps``, units in
    RocksDB get no store timestamps and cannot be used: for measurements only.

    Raises:
        RefusedStoreError: there is no plan, it was made for another store or with other settings,
            or the store was changed.
        StoreConfigError: ``master`` cannot run tasks on this machine.
        StoreLockedError: another migration command is using the workspace.
        CorruptionError, StoreIOError: a task failed; call again to continue.
    """
    space = workspace or Workspace.of(root.absolute())
    with space.held():
        plan = read_plan(space)
        if config is not None:
            plan.refuse_other_settings(config)
        refuse_switched(space, plan)
        check_source(plan, root)
        if exists(space.made.root):
            return _report(space, plan, 0, 0.0)
        check_master(master)
        segments, count = segments_of(space, plan), len(plan.segments)
        missing = sorted({*range(count)} - segments.tidy(count).keys())
        space.note("run", plan=plan.digest, segments=len(missing), master=master)
        rate = bytes_per_second / _parallel(master) if bytes_per_second else None
        items = _items(space, missing, rate, timestamps=timestamps)
        tick = partial(_report_progress, space, plan, missing, progress)
        if master != NO_SPARK:
            tick()  # Spark takes long to start
        with _room_named(space, plan):
            with ready(master if items else NO_SPARK):
                started = time.monotonic()
                run_tasks(move_segment, items, master, tick)
                seconds = time.monotonic() - started
            segments.tidy(count)  # of attempts that were killed and tried again, or came second
            report = _report(space, plan, len(missing), seconds)
            assemble(space, plan)
        space.note("made", plan=plan.digest, units=report.units, seconds=round(seconds, 3))
        progress(plan.units, plan.units)
    return report


@contextmanager
def _room_named(space: Workspace, plan: Plan) -> Iterator[None]:
    """Add to the error of a full disk how many bytes are missing, approximately."""
    try:
        yield
    except DiskFullError as exc:
        done = segments_of(space, plan).finished(len(plan.segments)).values()
        whole = [each for each in done if each.units]
        moved = sum(each.units for each in whole)
        a_unit = sum(each.bytes for each in whole) / moved if moved else UNIT_ROWS.itemsize
        place = exc.path or space.root
        raise DiskFullError(
            f"no space left on the disk: about {round((plan.units - moved) * a_unit)} more bytes"
            " are needed. Free space and run cqstore migrate run again; finished segments are kept",
            path=next(each for each in (place, *place.parents) if exists(each)),
        ) from exc


def move_segment(item: str) -> str:
    """Move the segment that ``item`` names; the task of ``run_plan``."""
    given = json.loads(item)
    space = Workspace(Path(given["workspace"]))
    done = write_segment(
        space, read_plan(space), given["segment"],
        bytes_per_second=given["rate"], timestamps=given["timestamps"],
    )  # fmt: skip
    return json.dumps(asdict(done))


def check_source(plan: Plan, root: Path) -> None:
    """Refuse a store other than that of the plan, or one whose oldest log file has expired.

    Raises:
        RefusedStoreError: the message describes the difference.
    """
    if log_identity([Path(folder) for folder in plan.log_folders]) != plan.identity:
        raise RefusedStoreError(
            f"the plan was made for another store ({plan.store}), or its oldest log file no longer"
            f" exists: {PLAN_AGAIN}",
            path=root,
        )
    if Path(plan.store) != root.absolute():
        raise RefusedStoreError(
            f"the plan was made for the store in {plan.store}. If the store was moved together with"
            f" its workspace, {PLAN_AGAIN}",
            path=root,
        )


def assemble(space: Workspace, plan: Plan) -> None:
    """Assemble the new queues from all segments, and make them durable.

    Raises:
        RefusedStoreError: a segment is missing.
    """
    parts, segments = [], segments_of(space, plan)
    for number in range(len(plan.segments)):
        done = segments.read_done(number)
        if done is None:
            raise RefusedStoreError(f"segment {number} is not finished", path=space.segments)
        parts.append(segments.attempt(number, done.attempt))
    target = bulk_backend(plan.target)
    target.assemble(parts, space.unfinished, plan.config, plan.complete_to)
    with os_errors("finish the new queues", space.made.root):
        space.unfinished.root.rename(space.made.root)
        sync_folder(space.root)


def _items(
    space: Workspace, missing: Sequence[int], rate: float | None, *, timestamps: bool
) -> list[str]:
    item = {"workspace": str(space.root), "rate": rate, "timestamps": timestamps}
    return [json.dumps({**item, "segment": number}) for number in missing]


def _report_progress(
    space: Workspace,
    plan: Plan,
    missing: Sequence[int],
    progress: Callable[[int, int], object],
    _: int = 0,
) -> None:
    """Report the number of moved units, including those of unfinished segments."""
    segments = segments_of(space, plan)
    reported = segments.units_done()  # a finished task has no progress file
    left = sum(
        plan.segments[number].units - reported.get(number, 0)
        for number in missing
        if not exists(segments.done(number))
    )
    progress(plan.units - left, plan.units)


def _parallel(master: str) -> int:
    """Return about how many tasks run at once under ``master``."""
    numbers = [int(text) for text in re.findall(r"\d+", master)]
    if master.startswith("local-cluster") and len(numbers) > 1:
        return numbers[0] * numbers[1]
    return numbers[0] if master.startswith("local[") and numbers else os.cpu_count() or 1


def _report(space: Workspace, plan: Plan, moved: int, seconds: float) -> RunReport:
    """Return the report of all segments moved so far."""
    done = segments_of(space, plan).finished(len(plan.segments)).values()
    return RunReport(
        plan=plan.digest, segments=len(plan.segments), moved=moved,
        units=sum(each.units for each in done), queues=sum(each.queues for each in done),
        bytes=sum(each.bytes for each in done), shifted=sum(each.shifted for each in done),
        shifted_queues=[name for each in done for name in each.shifted_queues][:10],
        seconds=round(seconds, 3),
    )  # fmt: skip
