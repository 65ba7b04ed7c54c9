"""Plan queues that are built from the commit log alone.

Tasks scan the log into blocks, the indexes of the blocks are merged, and the plan is made as for
any other source: ``run`` and the later steps are the same. Old queues, if they can be read, are
used only for the next offsets of queues without records in the log.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.migration.from_log.block_source import LOG, BlockUnitSource
from cqstore.migration.from_log.merge import Merged, merge_indexes
from cqstore.migration.from_log.scan_plan import ScanDone, ScanPlan, ScanSpace
from cqstore.migration.from_log.scan_task import scan_item, scan_range
from cqstore.migration.plan.log_identity import log_identity, tail_identity
from cqstore.migration.plan.plan import (
    Plan,
    Slice,
    refuse_second_plan,
    write_plan,
)
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS, SegmentWriter
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.tasks import MASTER, check_master, ran_in, run_tasks
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    RefusedStoreError,
    os_errors,
)
from cqstore.store.files import read_file
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal import MAX_BYTES
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.bulk import BulkBackend, bulk_backend
from cqstore.store.queue.queue_location import settings_of_tasks
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.recovering.find_log_end import valid_record_behind
from cqstore.store.settings.config import StoreConfig

RANGE_BYTES = 1 << 28
"""Minimum size of the log files that one task scans, except for the last task."""


@dataclass(slots=True)
class LogPlanReport:
    """The plan made from the log, and figures of the scan."""

    plan: Plan
    merged: Merged
    scanned: int
    """Tasks that this call ran; earlier calls had finished the others."""
    tasks: int
    records: int
    seconds: float
    """Duration of the scan in seconds, without the start of Spark."""


def make_log_plan(
    root: Path,
    config: StoreConfig | None = None,
    *,
    target: str = "rocksdb",
    master: str = MASTER,
    workspace: Workspace | None = None,
    segment_units: int = SEGMENT_UNITS,
    range_bytes: int = RANGE_BYTES,
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    progress: Progress = noop,
) -> LogPlanReport:
    """Plan to build queues of backend ``target`` from the log of the store in ``root``.

    Scans the log and changes nothing in the store. After an interruption, the same call continues.
    ``without`` and ``accept_older_tables`` are those of the switch. ``progress`` is called with the
    number of units that were found.

    Raises:
        RefusedStoreError: the queues cannot be built from this log; the message gives the reason.
        StoreConfigError: ``master`` runs no tasks here.
        CorruptionError: the log is damaged, or units are missing inside a queue.
        IllegalMessageError: the target cannot hold a queue.
        StoreLockedError: another migration works in the workspace.
    """
    root = root.absolute()
    space, to = workspace or Workspace.of(root), bulk_backend(target)
    config = config or StoreConfig()
    broker = NextBroker([target], config, without, accept_older_tables)
    found = obstacles(root, config, target, Step.PLAN_FROM_LOG, broker=broker)
    refuse(found, "plan the move", root)
    layout, config = resolve_layout(root, config, read_only=True)
    check_master(master)
    with space.held(begin=True):
        refuse_second_plan(space)
        log = CommitLog(layout.log_folders, config, read_only=True)
        log.load()
        try:
            planner = _LogPlanner(layout, config, to, space, log, progress)
            return planner.run(master, segment_units, range_bytes)
        finally:
            log.close()


class _LogPlanner:
    """Planner that scans the log of a store in tasks and plans segments from the blocks.

    The caller holds the lock of the workspace. Blocks of an earlier call are reused if log files,
    settings and deleted topics are the same.
    """

    def __init__(
        self,
        layout: StoreLayout,
        config: StoreConfig,
        target: BulkBackend,
        space: Workspace,
        log: CommitLog,
        progress: Callable[[int], object],
    ) -> None:
        self._layout = layout
        self._paths = layout.paths
        self._config = config
        self._target = target
        self._space = space
        self._scan_space = ScanSpace(space)
        self._log = log
        self._progress = progress

    def run(self, master: str, segment_units: int, range_bytes: int) -> LogPlanReport:
        """Scan the remaining log files, merge the indexes of the blocks, and write the plan.

        Raises:
            RefusedStoreError: scanned blocks were removed meanwhile.
            CorruptionError: the log is damaged, or units are missing inside a queue.
            IllegalMessageError: the target cannot hold a queue.
        """
        scan = self._begin(range_bytes)
        started = time.monotonic()
        missing = self._scan(len(scan.ranges), master)
        seconds = time.monotonic() - started
        scans = [*self._scan_space.finished(len(scan.ranges)).values()]
        if len(scans) < len(scan.ranges):
            raise RefusedStoreError("scanned blocks are missing", path=self._scan_space.root)
        end = self._end_of(scans)
        merged = merge_indexes(self._scan_space, scans, self._expired().items())
        plan = write_plan(self._space, self._plan(scan, segment_units, end))
        self._space.note(
            "planned", digest=plan.digest, queues=plan.queues, units=plan.units,
            restarts=len(merged.restarts), master=master, ranIn=ran_in(master, len(scans)),
        )  # fmt: skip
        return LogPlanReport(
            plan, merged, missing, len(scans), sum(done.records for done in scans),
            round(seconds, 3),
        )  # fmt: skip

    # ---- scan

    def _begin(self, range_bytes: int) -> ScanPlan:
        """Write the plan of the scan, or continue with an existing equal one."""
        space = self._scan_space
        journal = self._paths.deleted_topics
        text = read_file(journal, MAX_BYTES) if exists(journal) else b""
        plan = ScanPlan(
            identity=log_identity(self._layout.log_folders),
            settings=settings_of_tasks(self._config),
            log_folders=[str(folder) for folder in self._layout.log_folders],
            ranges=self._ranges(range_bytes), deleted_topics=str(journal),
            deleted_digest=hashlib.blake2b(text, digest_size=16).hexdigest(),
            target=self._target.name,
            whole_only=exists(self._paths.abort) and not locked_by(self._paths),
        )  # fmt: skip
        if exists(space.plan) and space.read_plan() == plan:
            return plan
        with os_errors("start a scan of the log", space.root):
            if exists(space.root):
                shutil.rmtree(space.root)
        write_file(space.plan, plan.model_dump_json(indent=1) + "\n")
        return plan

    def _ranges(self, range_bytes: int) -> list[list[int]]:
        """Return the starts of the log files that each task scans."""
        size = self._log.files.file_size
        count = max(-(-range_bytes // size), 1)
        starts = [file.file_from_offset for file in self._log.files]
        return [starts[at : at + count] for at in range(0, len(starts), count)]

    def _scan(self, tasks: int, master: str) -> int:
        """Run the unfinished tasks; return their number."""
        space = self._scan_space
        done = space.tidy(tasks, space.plan)
        missing = [task for task in range(tasks) if task not in done]
        before = sum(each.units for each in done.values())
        self._space.note("scan", tasks=len(missing), master=master)
        items = [scan_item(self._space, task) for task in missing]
        run_tasks(
            scan_range,
            items,
            master,
            lambda _: self._progress(before + self._reported_units(missing)),
        )
        return len(missing)

    def _reported_units(self, missing: Sequence[int]) -> int:
        """Return the number of units that the running tasks have reported."""
        found = self._scan_space.units_done()
        for task in missing:
            if (done := self._scan_space.read_done(task)) is not None:
                found[task] = done.units
        return sum(found.values())

    def _end_of(self, scans: Sequence[ScanDone]) -> int:
        """Return the phy offset at which the log ends.

        Raises:
            CorruptionError: valid records follow.
        """
        last = next((done for done in scans if done.fault), scans[-1])
        survivor = valid_record_behind(self._log, last.end) if last.fault else None
        if survivor is not None:
            file = self._log.files.find(last.end)
            raise CorruptionError(
                f"the log is damaged ({last.fault}) and a valid record follows at {survivor}. Run"
                f" cqstore check; on a copy, cqstore recover --cut-at {last.end} removes the damage"
                " and all records after it",
                path=file.path if file is not None else self._paths.commit_log,
                phy_offset=last.end,
            )
        return last.end

    # ---- plan

    def _expired(self) -> dict[QueueKey, int]:
        """Return the next offsets of queues that may have no records."""
        found = dict(self._old_ends())
        deleted = DeletedTopics(self._paths.deleted_topics)
        deleted.load()
        expired = ExpiredQueues(self._paths.expired_queues).ends()
        found |= {QueueKey(*queue): end for queue, end in expired.items()}
        gone = set(deleted.unfinished())
        return {queue: end for queue, end in found.items() if queue.topic not in gone}

    def _old_ends(self) -> Iterator[tuple[QueueKey, int]]:
        """Yield the next offsets of old queues without units, if all queues can be read."""
        if not self._layout.backends:
            return
        root = self._paths.root
        try:
            with MessageStore.open(root, self._config, read_only=True, housekeeping=False) as store:
                spans = [
                    (k, store.min_offset(*k), store.max_offset(*k)) for k in store.queue_keys()
                ]
        except (CorruptionError, ConsumeQueueError) as exc:
            self._space.note("old queues not readable", reason=str(exc))
            return
        yield from ((key, high) for key, low, high in spans if low >= high > 0)

    def _plan(self, scan: ScanPlan, segment_units: int, end: int) -> Plan:
        """Cut the merged queues into segments; return the plan, not yet written."""
        source = BlockUnitSource(self._space)
        config = scan.config
        writer = SegmentWriter(source, self._target, config, segment_units, self._paths.root)
        count = expired = 0

        def slices() -> Iterator[Slice]:
            nonlocal count, expired
            for queue in source.queues(None, None):
                self._target.check_queue(queue)
                first, following = source.span(queue)
                count += 1
                expired += first == following
                yield from writer.cut(queue, first, following)

        try:
            segments = writer.write(self._space, slices())
        finally:
            source.close()
        return Plan(
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            store=str(self._paths.root), identity=scan.identity, source=LOG,
            tail=tail_identity(self._log, end),
            target=self._target.name, settings=scan.settings, log_folders=scan.log_folders,
            min_phy_offset=self._log.min_phy_offset(), max_phy_offset=end, complete_to=end,
            queues=count, units=writer.units, expired=expired, empty=0, segments=segments,
        )  # fmt: skip
