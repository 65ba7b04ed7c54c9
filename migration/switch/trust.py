"""When a comparison that was made before the switch counts for it: nothing has changed since.

The caller has the store's lock. That the new queues are those that were compared is ``verified``'s
to say.
"""

from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.plan.plan import Plan
from cqstore.migration.verify import read_report
from cqstore.migration.verify.at_rest import is_as_told
from cqstore.migration.verify.verify_report import PlanFacts
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.verified_queues import KnownFile, VerifiedQueues, file_digests
from cqstore.store.path_kind import exists
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.settings.config import StoreConfig


def is_as_compared(space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig) -> bool:
    """Return whether the old queues, the log and our journals are those of the comparison.

    And whether that covers everything: the log ended where the plan's units do.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    facts = _facts(space, plan, layout, config)
    if facts is None or not facts.at_rest or plan.max_phy_offset != plan.complete_to:
        return False
    if read_report(space.report).result.notes.later:
        return False
    return is_as_told(facts.at_rest, layout.paths, plan.source, layout.log_folders)


def known_queues(
    space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig
) -> KnownFile | None:
    """Return what shows which of the old queues are those of the comparison; ``None``: nothing.

    Files of the log that the plan's units fill are as they were, or have expired.

    Raises:
        StoreIOError: the files cannot be looked at.
    """
    facts = _facts(space, plan, layout, config)
    if facts is None or not facts.known_queues or not exists(space.known_queues):
        return None
    file = KnownFile(space.known_queues.absolute(), plan.complete_to)
    known = VerifiedQueues.of(file)
    logs = (file_digests(folder, plan.complete_to) for folder in layout.log_folders)
    if known.digest != facts.known_queues or not all(each in known for log in logs for each in log):
        return None
    return file


def _facts(
    space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig
) -> PlanFacts | None:
    """Return what the report says of the files, unless the store is in no state to ask.

    It is in none with a rebuild that is not finished, or a backend that lags, or got, or is to
    get, other topics than another.
    """
    if plan.source == LOG or plan.replaces or layout.backends != [plan.source]:
        return None
    paths, backend_state = layout.paths, layout.backend_state
    unfinished = (paths.abort, paths.replacing, paths.rebuilding)
    asked = config.combine_cq_use_rocksdb_for_lmq or config.double_write_selection is not None
    if (
        backend_state.lagging
        or backend_state.covers
        or asked
        or any(exists(path) for path in unfinished)
    ):
        return None
    report = read_report(space.report)
    # For a copy that shares its files it was not checked whether the store itself was open.
    return report.plan if report.store == str(paths.root) else None
