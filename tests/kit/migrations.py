"""Migrations in tests: what a plan's source and the new queues hold, unit by unit."""

import shutil
from pathlib import Path

from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import RunReport, run_plan
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.queue.queue_location import queue_context
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

Units = dict[int, tuple[int, int, int, int]]
"""Queue offset → phy offset, size, tags code, store timestamp (-1 where it is not kept)."""
NO_SPARK = "none"


def put_some(root: Path, topic: str) -> None:
    """Put five messages to the store in ``root``."""
    with MessageStore.open(root, housekeeping=False) as store:
        for number in range(5):
            assert store.put_message(Message(topic, b"x" * 50, number % 3, {"TAGS": "t"})).ok


def stored(paths: StorePaths, backend: str, plan: Plan) -> dict[QueueKey, Units]:
    """Return all that lies in the queues of one backend."""
    folders = [Path(folder) for folder in plan.log_folders]
    source = bulk_backend(backend).source(queue_context(paths, folders, plan.config))
    try:
        return {
            queue: {
                run.queue_offset + at: row
                for run in source.runs(queue, 100)
                for at, row in enumerate(run.rows.tolist())
            }
            for queue in source.queues(None, None)
        }
    finally:
        source.close()


def next_offsets(paths: StorePaths, backend: str, plan: Plan) -> dict[QueueKey, int]:
    """Return where each queue goes on, as the backend has it written down."""
    folders = [Path(folder) for folder in plan.log_folders]
    source = bulk_backend(backend).source(queue_context(paths, folders, plan.config))
    try:
        return {queue: source.next_offset(queue) for queue in source.queues(None, None)}
    finally:
        source.close()


def move(
    root: Path, target: str = "rocksdb", segment_units: int = 300
) -> tuple[Workspace, Plan, RunReport]:
    """Plan and run, without Spark."""
    plan = make_plan(root, target=target, segment_units=segment_units)
    report = run_plan(root, master=NO_SPARK)
    return Workspace.of(root), plan, report


def closed_copy(store: Path, target: Path) -> Path:
    """Return a copy of a store that has been recovered and closed, without our own notes."""
    shutil.copytree(store, target)
    with MessageStore.open(target, housekeeping=False):
        pass
    return target


def without_times(queues: dict[QueueKey, Units]) -> dict[QueueKey, dict[int, tuple[int, ...]]]:
    """Return units without their store timestamps, which files do not keep."""
    return {key: {at: row[:3] for at, row in units.items()} for key, units in queues.items()}


def moved_and_verified(root: Path, config: StoreConfig, target: str) -> None:
    """Plan, run and verify, without Spark: what a switch needs."""
    make_plan(root, config, target=target)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
