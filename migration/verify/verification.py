"""Compare all queues of two backends in tasks, and write the report."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from cqstore.migration.from_log.block_source import LOG, BlockUnitSource
from cqstore.migration.plan.plan import Plan, read_plan
from cqstore.migration.run.run import check_source
from cqstore.migration.tasks import MASTER, check_master, ran_in, run_tasks
from cqstore.migration.verify.clients_report import ClientsReport
from cqstore.migration.verify.deep import RecordCheck
from cqstore.migration.verify.fingerprint import made_digest
from cqstore.migration.verify.page import need_page, write_page
from cqstore.migration.verify.verify_report import (
    PlanFacts,
    Side,
    VerifyReport,
    read_report,
    write_report,
)
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.comparing.range_tasks import compare_item, range_items
from cqstore.store.comparing.ranges import RANGE_QUEUES, RANGE_UNITS, cut_ranges
from cqstore.store.comparing.verified_queues import VerifiedQueues, digests_at_rest, is_at_rest
from cqstore.store.errors import RefusedStoreError, StoreError, os_errors
from cqstore.store.journals.store_lock import lock_stamp
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UnitSource
from cqstore.store.queue.queue_location import QueuePlace

Progress = Callable[[int, int], object]
"""Called with the number of compared ranges and the total number."""
CompareClients = Callable[[QueuePlace, QueuePlace, int, str | None], ClientsReport]
"""``compare_by_clients`` with its first argument: clients read source and target."""


def verify_migration(
    root: Path,
    *,
    workspace: Workspace | None = None,
    master: str = MASTER,
    deep: bool = False,
    progress: Progress = lambda done, ranges: None,
    range_units: int = RANGE_UNITS,
    range_queues: int = RANGE_QUEUES,
    clients: CompareClients | None = None,
) -> VerifyReport:
    """Compare the queues of the store in ``root`` with the new queues of its migration.

    Writes the report, its page and an entry in the journal; the last report is removed first.
    ``deep`` also decodes every record. ``clients`` also read both.

    Raises:
        RefusedStoreError: there is no plan, it is of another store, or its run is not finished;
            or clients cannot read the source, which is only a log.
        StoreConfigError: ``master`` cannot run tasks on this machine, or jinja2 is not installed.
        StoreLockedError: another migration command is using the workspace.
        StoreIOError: a file cannot be read or written; there is no report then.
    """
    root = root.absolute()
    space = workspace or Workspace.of(root)
    with space.held():
        plan = _plan_of_made(space, root)
        _begin_report(space, master)
        source, target = _places(plan, space, root)
        made, paths, known = made_digest(space), StorePaths(root), ""
        stamp, folders, end = lock_stamp(paths), source.log_folders, plan.complete_to
        rest = [] if plan.source == LOG else digests_at_rest(paths, plan.source, folders, end)
        report, facts = _compare(
            source, target, complete_to=plan.complete_to, topics=plan.topics, facts=bool(rest),
            master=master, deep=deep, progress=progress, range_units=range_units,
            range_queues=range_queues, clients=clients,
        )  # fmt: skip
        if rest and is_at_rest(paths) and lock_stamp(paths) == stamp:
            known = VerifiedQueues.write(space.known_queues, facts + rest)
        report.max_phy_offset = plan.max_phy_offset  # the log, not its last file
        report.plan = PlanFacts(
            digest=plan.digest, created=plan.created, complete_to=plan.complete_to, made=made,
            known_queues=known, topics=plan.topics, left=plan.left,
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
    clients: CompareClients | None = None,
) -> VerifyReport:
    """Compare all queues in two places that share one commit log.

    With a ``workspace``, the report and its page are written there and replace the last ones.
    ``clients`` also read both.

    Raises:
        RefusedStoreError: a place has no queues of its backend.
        StoreConfigError: as ``verify_migration``.
        StoreIOError: the disk refused.
    """

    def compare() -> VerifyReport:
        return _compare(
            source, target, complete_to=NO_END, master=master, deep=deep, progress=progress,
            range_units=range_units, range_queues=range_queues, clients=clients,
        )[0]  # fmt: skip

    if workspace is None:
        return compare()
    with workspace.held(begin=True):
        _begin_report(workspace, master)
        report = compare()
        _keep(workspace, report)
        workspace.note("verified", plan=None, verdict=report.verdict)
    return report


def verified(space: Workspace, plan: Plan) -> str | None:
    """Return why the new queues are not verified; ``None`` if they are.

    They are verified if the last comparison finished without a difference, and was made for this
    plan and for exactly the present files.
    """
    try:
        report = read_report(space.report)
    except StoreError as exc:
        return str(exc)
    if report.plan is None or report.plan.digest != plan.digest:
        return "the last comparison was made for another plan: run cqstore migrate verify"
    if not report.equal:
        return f"the last comparison found differences: see {space.report_page}"
    if report.plan.made != made_digest(space):
        return "the new queues were changed after the comparison: run cqstore migrate verify again"
    return None


# ---- the work


def _plan_of_made(space: Workspace, root: Path) -> Plan:
    """Return the plan whose run has made the queues in ``space`` from the store in ``root``.

    Raises:
        RefusedStoreError: there is no plan, it is of another store, or its run is not finished.
    """
    plan = read_plan(space)
    check_source(plan, root)
    if not exists(space.made.root):
        raise RefusedStoreError(
            "no new queues to compare: run cqstore migrate run first", path=space.root
        )
    return plan


def _places(plan: Plan, space: Workspace, root: Path) -> tuple[QueuePlace, QueuePlace]:
    """Return the places of the old and of the new queues."""
    folders = tuple(Path(folder) for folder in plan.log_folders)
    below = space.root if plan.source == LOG else root
    source = ScannedLog(plan.source, below, folders, plan.settings)
    return source, QueuePlace(plan.target, space.made.root, folders, plan.settings)


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
    facts: bool = False,
    topics: str | None = None,
    clients: CompareClients | None = None,
) -> tuple[VerifyReport, list[bytes]]:
    """Return the report, and with ``facts`` those of the queues that it names as good.

    ``topics``: the selection of the topics to compare; ``None``: all.
    """
    started, began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
    log_begin, log_end = _extent(source)
    bounds = Bounds(log_begin, complete_to)
    ranges = cut_ranges(source, target, max_units=range_units, max_queues=range_queues)
    chosen = [] if topics is None else [topics]
    items = range_items(source, target, bounds, ranges, deep=deep, facts=facts, selections=chosen)
    progress(0, len(items))
    found = ComparisonFindings()

    def tick(done: int) -> None:
        progress(done, len(items))

    for text in run_tasks(compare_range, items, master, tick, alone=True):
        found.add(ComparisonFindings.of(text))
    progress(len(items), len(items))
    result = found.tally
    report = VerifyReport(
        verdict="different" if result.differing else "equal", store=str(source.root),
        source_side=Side(backend=source.backend, folder=str(source.root)),
        target_side=Side(backend=target.backend, folder=str(target.root)),
        plan=None, deep=deep, started=started, seconds=round(time.monotonic() - began, 3),
        tasks=len(items), ran_in={"verify": ran_in(master, len(items), alone=True)},
        min_phy_offset=bounds.min_phy_offset, max_phy_offset=log_end, result=result,
    )  # fmt: skip
    if clients is not None:
        report.clients = clients(source, target, complete_to, topics)
        report.verdict = "equal" if report.equal and report.clients.equal else "different"
    return report, found.facts


def _extent(source: QueuePlace) -> tuple[int, int]:
    """Return where the log begins, and where its last file ends."""
    log = CommitLog(list(source.log_folders), source.config, read_only=True)
    try:
        log.load()
        return max(log.min_phy_offset(), 0), log.max_phy_offset()
    finally:
        log.close()


def compare_range(item: str) -> str:
    """Compare the range that ``item`` names; the task of both comparisons."""
    given = json.loads(item)
    source, target = ScannedLog.of(given["source"]), QueuePlace.of(given["target"])
    deep = (lambda log: RecordCheck(log, source.config).problem) if given["deep"] else None
    return compare_item(given, source, target, deep=deep).text()


class ScannedLog(QueuePlace):
    """A place that may be the workspace into which the log was scanned: that of backend ``log``."""

    def open(self) -> UnitSource:
        """Open the queues; changes nothing."""
        if self.backend == LOG:
            return BlockUnitSource(Workspace(self.root))
        return super().open()


# ---- the outcome


def _earlier_steps(space: Workspace) -> dict[str, str]:
    """Return where the tasks of the plan and of its runs ran, from the journal."""
    found: dict[str, str] = {}
    for entry in space.history():
        if entry["step"] == "planned":
            found = {"plan": entry["ranIn"]} if "ranIn" in entry else {}
        elif entry["step"] == "run" and entry.get("segments"):
            found["run"] = ran_in(entry["master"], entry["segments"])
    return found


def _begin_report(space: Workspace, master: str) -> None:
    """Remove the last report, where another one can be made.

    Raises:
        StoreConfigError: none can.
        StoreIOError: the disk refused.
    """
    check_master(master)
    need_page()
    with os_errors("remove the last report", space.report):
        space.report.unlink(missing_ok=True)
        space.report_page.unlink(missing_ok=True)
        space.known_queues.unlink(missing_ok=True)


def _keep(space: Workspace, report: VerifyReport) -> None:
    if report.plan is not None:
        report.ran_in = _earlier_steps(space) | report.ran_in
    write_page(space.report_page, report)
    write_report(space.report, report)
