"""Comparing all queues of two backends as tasks, and what becomes of the outcome."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migration.copying.run import check_source
from migration.planning.plan import Plan, read_plan
from migration.rebuild.block_source import LOG
from migration.tasks import MASTER, run_tasks
from migration.verify.at_rest import at_rest
from migration.verify.comparison import QueuePlace, Range, RangeComparison
from migration.verify.deep import RecordCheck
from migration.verify.fingerprint import made_digest
from migration.verify.log_heads import LogHeads
from migration.verify.page import write_page
from migration.verify.queue_walk import Bounds
from migration.verify.ranges import RANGE_QUEUES, RANGE_UNITS, cut_ranges
from migration.verify.report import (
    PlanFacts,
    Side,
    Tally,
    VerifyReport,
    read_report,
    write_report,
)
from migration.workspace import Workspace
from store.config import StoreConfig
from store.errors import RefusedStoreError, StoreError, os_errors
from store.log.commit_log import CommitLog
from store.paths import StorePaths
from store.queue.units import QueueKey

_NO_END = (1 << 63) - 1
Progress = Callable[[int, int], object]
"""Told how many ranges have been compared, and of how many."""


def verify_migration(
    root: Path,
    *,
    workspace: Workspace | None = None,
    master: str = MASTER,
    deep: bool = False,
    progress: Progress = lambda done, ranges: None,
    range_units: int = RANGE_UNITS,
    range_queues: int = RANGE_QUEUES,
) -> VerifyReport:
    """Compare the queues of the store in ``root`` with those that its plan's run has made.

    Writes the report, its page and a note in the journal; while it runs there is no report.
    ``deep`` decodes every record too.

    Raises:
        RefusedStoreError: no plan, another store's, or its run has not ended.
        StoreLockedError: another migration works in the workspace.
        StoreIOError: the disk refused; there is no report then.
    """
    root = root.absolute()
    space = workspace or Workspace.of(root)
    with space.held():
        plan = read_plan(space)
        check_source(plan, root)
        if not space.made.root.exists():
            raise RefusedStoreError(
                "there is nothing to compare yet: cqstore migrate run", path=space.root
            )
        _forget_report(space)
        folders = tuple(Path(folder) for folder in plan.log_folders)
        below = space.root if plan.source == LOG else root
        source = QueuePlace(plan.source, below, folders, plan.settings)
        target = QueuePlace(plan.target, space.made.root, folders, plan.settings)
        made = made_digest(space)
        rest = "" if plan.source == LOG else at_rest(StorePaths(root), plan.source, folders)
        report = _compare(
            source, target, complete_to=plan.complete_to, master=master, deep=deep,
            progress=progress, range_units=range_units, range_queues=range_queues,
        )  # fmt: skip
        report.max_phy_offset = plan.max_phy_offset  # the log, not its last file
        report.plan = PlanFacts(
            digest=plan.digest, created=plan.created, complete_to=plan.complete_to, made=made,
            at_rest=rest,
        )  # fmt: skip
        _keep(space, report)
        space.note("verified", plan=plan.digest, verdict=report.verdict, made=made)
    return report


def verify_queues(
    source: QueuePlace,
    target: QueuePlace,
    *,
    workspace: Workspace | None = None,
    master: str = MASTER,
    deep: bool = False,
    progress: Progress = lambda done, ranges: None,
    range_units: int = RANGE_UNITS,
    range_queues: int = RANGE_QUEUES,
) -> VerifyReport:
    """Compare the queues in two places, which lead to one log: all of it counts.

    With a ``workspace`` the report and its page are written there, in place of the last.

    Raises:
        RefusedStoreError: a place has no queues of its backend.
        StoreIOError: the disk refused.
    """

    def compare() -> VerifyReport:
        return _compare(
            source, target, complete_to=_NO_END, master=master, deep=deep, progress=progress,
            range_units=range_units, range_queues=range_queues,
        )  # fmt: skip

    if workspace is None:
        return compare()
    with workspace.held(begin=True):
        _forget_report(workspace)
        report = compare()
        _keep(workspace, report)
        workspace.note("verified", plan=None, verdict=report.verdict)
    return report


def verified(space: Workspace, plan: Plan) -> str | None:
    """Return why the made queues are not known to be right; ``None``: they are.

    They are if the last comparison has ended, found no difference, and was of this plan and of
    the files that lie there now, byte for byte.
    """
    try:
        report = read_report(space.report)
    except StoreError as exc:
        return str(exc)
    if report.plan is None or report.plan.digest != plan.digest:
        return "the last comparison was of another plan: run cqstore migrate verify"
    if not report.equal:
        return f"the last comparison found differences, see {space.report_page}"
    if report.plan.made != made_digest(space):
        return "the new queues were changed since they were compared: run cqstore migrate verify"
    return None


# ---- the work


def _compare(
    source: QueuePlace,
    target: QueuePlace,
    *,
    complete_to: int,
    master: str,
    deep: bool,
    progress: Progress,
    range_units: int,
    range_queues: int,
) -> VerifyReport:
    started, began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
    log = CommitLog(
        list(source.log_folders), StoreConfig.from_mapping(source.settings), read_only=True
    )
    log.load()
    bounds = Bounds(max(log.min_phy_offset(), 0), complete_to)
    ranges = cut_ranges(source, target, most_units=range_units, most_queues=range_queues)
    items = [_item(source, target, bounds, each, deep=deep) for each in ranges]
    progress(0, len(items))
    result = Tally()
    for text in run_tasks(compare_range, items, master):
        result.take(Tally.model_validate_json(text))
    progress(len(items), len(items))
    return VerifyReport(
        verdict="different" if result.differing else "equal", store=str(source.root),
        source_side=Side(backend=source.backend, folder=str(source.root)),
        target_side=Side(backend=target.backend, folder=str(target.root)),
        plan=None, deep=deep, started=started, seconds=round(time.monotonic() - began, 3),
        tasks=len(items), min_phy_offset=bounds.min_phy_offset,
        max_phy_offset=log.max_phy_offset(), result=result,
    )  # fmt: skip


def compare_range(item: str) -> str:
    """Compare the range that ``item`` names; the task of both comparisons."""
    given = json.loads(item)
    source, target = (_place(given[side]) for side in ("source", "target"))
    after, up_to = (QueueKey(*key) if key else None for key in given["range"])
    log = LogHeads(source.log_folders)
    config = StoreConfig.from_mapping(source.settings)
    deep = RecordCheck(log, config) if given["deep"] else None
    opened = source.open()
    try:
        other = target.open()
        try:
            comparison = RangeComparison(opened, other, log, Bounds(*given["bounds"]), deep)
            return comparison.run((after, up_to)).model_dump_json()
        finally:
            other.close()
    finally:
        opened.close()


def _item(
    source: QueuePlace, target: QueuePlace, bounds: Bounds, between: Range, *, deep: bool
) -> str:
    places = {"source": _plain(source), "target": _plain(target)}
    return json.dumps({**places, "bounds": bounds, "range": between, "deep": deep})


def _plain(place: QueuePlace) -> dict[str, Any]:
    folders = [str(folder) for folder in place.log_folders]
    return {
        "backend": place.backend, "root": str(place.root), "log": folders,
        "settings": place.settings,
    }  # fmt: skip


def _place(given: dict[str, Any]) -> QueuePlace:
    folders = tuple(Path(folder) for folder in given["log"])
    return QueuePlace(given["backend"], Path(given["root"]), folders, given["settings"])


# ---- the outcome


def _forget_report(space: Workspace) -> None:
    with os_errors("remove the last report", space.report):
        space.report.unlink(missing_ok=True)
        space.report_page.unlink(missing_ok=True)


def _keep(space: Workspace, report: VerifyReport) -> None:
    write_page(space.report_page, report)
    write_report(space.report, report)
