"""Running a plan: its segments as tasks, then the new queues put together from what they wrote.

Run again after whatever stopped it, it goes on: segments with a marker are not done again. Nothing
of the store is touched; the new queues lie in the workspace until they have been verified.
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
    """What one run of a plan did."""

    plan: str
    """Digest of the plan."""
    segments: int
    moved: int
    """Segments that this run moved; the others were done before."""
    units: int
    queues: int
    bytes: int
    shifted: int
    """Units whose record names another place than they have; their place was kept."""
    shifted_queues: list[str]
    seconds: float
    """Of this run, without the start of Spark."""


def run_plan(
    root: Path, *, workspace: Workspace | None = None, master: str = MASTER,
    bytes_per_second: float | None = None,
    progress: Callable[[int, int], object] = lambda done, units: None,
    timestamps: bool = True, config: StoreConfig | None = None,
) -> RunReport:  # fmt: skip
    """Move what the plan of the store in ``root`` says, into the workspace.

    Segments that an earlier run has moved are not moved again. ``progress`` is told units moved
    and units planned; ``bytes_per_second`` is shared by all tasks. The settings are the plan's;
    ``config``: settings that must be no others. Without ``timestamps`` units in RocksDB get no
    store times out of the log and are of no use: for measuring alone.

    Raises:
        RefusedStoreError: there is no plan, it is another store's or was made under other settings,
            or the store was changed.
        StoreConfigError: ``master`` runs no tasks here.
        StoreLockedError: another migration works in the workspace.
        CorruptionError, StoreIOError: a task could not do its work; run again to go on.
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
        items = [_item(space, number, rate, timestamps) for number in missing]
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
    """Say of a full disk how much room is lacking, about, and that what was moved is kept."""
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
    """Refuse a store that is not the plan's, or whose log is not the plan's any more.

    Raises:
        RefusedStoreError: with what is different.
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
    """Remove what tasks left that were stopped, or were of another plan."""
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
    """Put the new queues together from all segments, and make them durable.

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


def _item(space: Workspace, number: int, rate: float | None, timestamps: bool) -> str:  # noqa: FBT001
    return json.dumps(
        {"workspace": str(space.root), "segment": number, "rate": rate, "timestamps": timestamps}
    )


def _report_progress(
    space: Workspace,
    plan: Plan,
    missing: Sequence[int],
    progress: Callable[[int, int], object],
    _: int = 0,
) -> None:
    """Report the units that have been moved, those of the ``missing`` segments too."""
    told = units_done(space)  # a task that has ended reports nothing any more
    left = sum(
        plan.segments[number].units - told.get(number, 0)
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
    """Return what has been moved until now."""
    found = [read_done(space, number, plan) for number in range(len(plan.segments))]
    done: list[SegmentDone] = [each for each in found if each is not None]
    return RunReport(
        plan=plan.digest, segments=len(plan.segments), moved=moved,
        units=sum(each.units for each in done), queues=sum(each.queues for each in done),
        bytes=sum(each.bytes for each in done), shifted=sum(each.shifted for each in done),
        shifted_queues=[name for each in done for name in each.shifted_queues][:10],
        seconds=round(seconds, 3),
    )  # fmt: skip
