"""Run a plan: its segments as tasks, then assemble the new queues from their files.

After an interruption, the next run continues: segments with a marker are not moved again. The store
is not changed; the new queues stay in the workspace until they are verified and switched to.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cqstore.migration.plan.log_identity import log_identity
from cqstore.migration.plan.plan import PLAN_AGAIN, Plan, read_plan, refuse_switched
from cqstore.migration.run.segment import SegmentDone, read_done, units_done, write_segment
from cqstore.migration.tasks import MASTER, NO_SPARK, check_master, ready, run_tasks
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import DiskFullError, RefusedStoreError, os_errors
from cqstore.store.files import sync_folder
from cqstore.store.path_kind import exists, is_dir
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
        tidy(space, plan)
        missing = [n for n in range(len(plan.segments)) if read_done(space, n, plan) is None]
        space.note("run", plan=plan.digest, segments=len(missing), master=master)
        rate = bytes_per_second / _parallel(master) if bytes_per_second else None
        item = {"workspace": str(space.root), "rate": rate, "timestamps": timestamps}
        items = [json.dumps({**item, "segment": number}) for number in missing]
        tick = partial(_report_progress, space, plan, missing, progress)
        if master != NO_SPARK:
            tick()  # Spark takes long to start
        with _room_named(space, plan):
            with ready(master if items else NO_SPARK):
                started = time.monotonic()
                run_tasks(move_segment, items, master, tick)
                seconds = time.monotonic() - started
            tidy(space, plan)  # of attempts that were killed and tried again, or came second
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
        done = [read_done(space, number, plan) for number in range(len(plan.segments))]
        whole = [each for each in done if each is not None and each.units]
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


def tidy(space: Workspace, plan: Plan) -> None:
    """Remove files of tasks that were stopped or belong to another plan."""
    with os_errors("clean up the workspace", space.segments):
        space.segments.mkdir(exist_ok=True)
        kept = set()
        for number in range(len(plan.segments)):
            if (done := read_done(space, number, plan)) is not None:
                kept |= {space.attempt(number, done.attempt), space.done(number)}
        for path in space.segments.iterdir():
            if path in kept:
                continue
            if is_dir(path):
                # An abandoned task may still write: it finds no folder of this name.
                gone = path.with_name(f"{path.name}.gone")
                path.rename(gone)
                shutil.rmtree(gone)
            else:
                path.unlink(missing_ok=True)


def assemble(space: Workspace, plan: Plan) -> None:
    """Assemble the new queues from all segments, and make them durable.

    Raises:
        RefusedStoreError: a segment is missing.
    """
    parts = []
    for number in range(len(plan.segments)):
        done = read_done(space, number, plan)
        if done is None:
            raise RefusedStoreError(f"segment {number} is not finished", path=space.segments)
        parts.append(space.attempt(number, done.attempt))
    target = bulk_backend(plan.target)
    target.assemble(parts, space.unfinished, plan.config, plan.complete_to)
    with os_errors("finish the new queues", space.made.root):
        space.unfinished.root.rename(space.made.root)
        sync_folder(space.root)


def _report_progress(
    space: Workspace,
    plan: Plan,
    missing: Sequence[int],
    progress: Callable[[int, int], object],
    _: int = 0,
) -> None:
    """Report the number of moved units, including those of unfinished segments."""
    reported = units_done(space)  # a finished task has no progress file
    left = sum(
        plan.segments[number].units - reported.get(number, 0)
        for number in missing
        if not exists(space.done(number))
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
    found = [read_done(space, number, plan) for number in range(len(plan.segments))]
    done: list[SegmentDone] = [each for each in found if each is not None]
    return RunReport(
        plan=plan.digest, segments=len(plan.segments), moved=moved,
        units=sum(each.units for each in done), queues=sum(each.queues for each in done),
        bytes=sum(each.bytes for each in done), shifted=sum(each.shifted for each in done),
        shifted_queues=[name for each in done for name in each.shifted_queues][:10],
        seconds=round(seconds, 3),
    )  # fmt: skip
