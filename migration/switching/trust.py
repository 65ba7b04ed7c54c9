"""When a comparison that was made before the switch counts for it: nothing has changed since."""

from migration.planning.plan import Plan
from migration.rebuild.block_source import LOG
from migration.verify import read_report
from migration.verify.at_rest import rest_digest
from migration.workspace import Workspace
from store.config import StoreConfig
from store.service.finding.store_layout import StoreLayout


def is_as_compared(space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig) -> bool:
    """Return whether the old queues, the log and our journals are those of the comparison.

    And whether that covers everything: the log ended where the plan's units do, no backend is
    behind, and none gets topics of its own. That the new queues are those that were compared is
    ``verified``'s to say. The caller has the store's lock.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    paths = layout.paths
    if plan.source == LOG or plan.replaces or layout.backends != [plan.source]:
        return False
    unfinished = (paths.abort, paths.replacing, paths.rebuilding)
    if any(path.exists() for path in unfinished) or _apart(layout, config):
        return False
    report = read_report(space.report)
    if report.plan is None or not report.plan.at_rest or report.result.notes.later:
        return False
    if plan.max_phy_offset != plan.complete_to:
        return False
    return rest_digest(paths, plan.source, layout.log_folders) == report.plan.at_rest


def _apart(layout: StoreLayout, config: StoreConfig) -> bool:
    """Return whether a backend is behind, or got, or is to get, other topics than another."""
    standing = layout.standing
    asked = config.combine_cq_use_rocksdb_for_lmq or config.double_write_selection is not None
    return bool(standing.behind or standing.covers or asked)
