"""Check whether the last comparison is still valid for a switch: no file has changed since.

The caller holds the lock of the store. ``verified`` checks that the new queues are unchanged.
"""

from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.plan.plan import Plan
from cqstore.migration.verify import read_report
from cqstore.migration.verify.at_rest import is_unchanged
from cqstore.migration.verify.verify_report import PlanFacts
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.verified_queues import KnownFile, VerifiedQueues, file_digests
from cqstore.store.path_kind import exists
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.settings.config import StoreConfig


def is_as_compared(space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig) -> bool:
    """Return whether old queues, log and journals are unchanged since the comparison.

    Also require that the comparison covered everything: the log ended with the planned units.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    facts = _facts(space, plan, layout, config)
    if facts is None or not facts.at_rest or plan.max_phy_offset != plan.complete_to:
        return False
    if read_report(space.report).result.notes.later:
        return False
    return is_unchanged(facts.at_rest, layout.paths, plan.source, layout.log_folders)


def known_queues(
    space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig
) -> KnownFile | None:
    """Return the file that shows which old queues are unchanged since the comparison, or ``None``.

    The log files up to the end of the plan must be unchanged or expired.

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
    """Return the file digests of the report; ``None`` if the state of the store rules them out.

    That is: an unfinished rebuild, a lagging backend, or backends with different topics.
    """
    if plan.source == LOG or plan.replaces or layout.backends != [plan.source]:
        return None
    paths, backend_state = layout.paths, layout.backend_state
    unfinished = (paths.abort, paths.replacing, paths.rebuilding)
    is_selective = (
        config.combine_cq_use_rocksdb_for_lmq or config.double_write_selection is not None
    )
    if (
        backend_state.lagging
        or backend_state.covers
        or is_selective
        or any(exists(path) for path in unfinished)
    ):
        return None
    report = read_report(space.report)
    # For a copy that shares its files it was not checked whether the store itself was open.
    return report.plan if report.store == str(paths.root) else None
