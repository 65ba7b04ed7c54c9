"""Scan a range of log files into blocks, in any process.

The marker is created last and only once; a second attempt that finds it discards its own work.
"""

import json
from dataclasses import asdict
from pathlib import Path

from cqstore.migration.from_log.blocks import BlockWriter
from cqstore.migration.from_log.log_scan import LogScan
from cqstore.migration.from_log.scan_plan import ScanDone, ScanPlan, ScanSpace
from cqstore.migration.markers import PROGRESS, new_attempt
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.backends import backend
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits


def scan_item(workspace: Workspace, task: int) -> str:
    """Return the text of a task."""
    return json.dumps({"workspace": str(workspace.root), "task": task})


def scan_range(item: str) -> str:
    """Scan the log files of the task ``item``, unless it is done.

    Raises:
        CorruptionError: a journal is damaged. Damage in the log is a result, see ``ScanDone``.
        DiskFullError, StoreIOError: a file cannot be written; the attempt's folder is removed.
    """
    given = json.loads(item)
    space, task = ScanSpace(Workspace(Path(given["workspace"]))), given["task"]
    done = space.read_done(task)
    if done is None:
        plan = space.read_plan()
        mine = ScanDone(task, new_attempt(), end=plan.ranges[task][0])

        def scan(folder: Path) -> None:
            with os_errors("scan the log into blocks", folder):
                _scan(plan, mine, folder)

        done = space.make(task, mine, scan)
    return json.dumps(asdict(done))


def _scan(plan: ScanPlan, done: ScanDone, folder: Path) -> None:
    """Write the units of the files of a task to ``folder``; add the results to ``done``."""
    config = plan.config
    log = CommitLog([Path(each) for each in plan.log_folders], config, read_only=True)
    log.load()
    deleted = DeletedTopics(Path(plan.deleted_topics))
    deleted.load()
    bulk = bulk_backend(plan.target)
    units = RecordUnits(
        config, deleted, lambda _: QueueType.SIMPLE,
        check_topic=lambda topic: bulk.check_queue(QueueKey(topic, 0)),
        lmq_needs_multi_dispatch=backend(plan.target).lmq_needs_multi_dispatch,
    )  # fmt: skip
    rules = ScanRules(config.check_crc_on_recover, config.force_verify_prop_crc)
    scan = LogScan(log, units, rules, whole_only=plan.whole_only)
    writer = BlockWriter(folder)
    try:
        _write_units(scan, writer, plan.ranges[done.task], log.files.file_size, done, folder)
        done.digest = writer.finish()
    finally:
        writer.abandon()
        log.close()
    done.records = scan.records


def _write_units(
    scan: LogScan, writer: BlockWriter, starts: list[int], size: int, done: ScanDone, folder: Path
) -> None:
    """Scan the files of ``size`` bytes at ``starts``, which are consecutive."""
    end = starts[-1] + size
    try:
        for units in scan.scan(starts[0], end):
            writer.add(units)
            done.units += len(units)
            (folder / PROGRESS).write_text(str(done.units))
    except CorruptionError as exc:
        done.fault = exc.reason
        if scan.last is not None:
            done.end = scan.last.phy_offset + scan.last.size
        if exc.phy_offset is not None:
            done.end = exc.phy_offset
    else:
        done.end = end
