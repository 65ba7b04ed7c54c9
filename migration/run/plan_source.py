"""The source of a plan: the old queues, or the blocks of the scanned log."""

from pathlib import Path

from cqstore.migration.from_log.block_source import LOG, BlockUnitSource
from cqstore.migration.plan.plan import Plan
from cqstore.migration.workspace import Workspace
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UnitSource, bulk_backend
from cqstore.store.queue.queue_location import queue_context


def open_source(workspace: Workspace, plan: Plan) -> UnitSource:
    """Open the source of a plan.

    Raises:
        StoreError: it cannot be opened.
    """
    if plan.source == LOG:
        return BlockUnitSource(workspace)
    folders = [Path(each) for each in plan.log_folders]
    context = queue_context(StorePaths(Path(plan.store)), folders, plan.config)
    return bulk_backend(plan.source).source(context)
