"""Check whether the last comparison is still valid for a switch: no file has changed since.

The caller holds the lock of the store. ``verified`` checks that the new queues are unchanged.
"""

from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.plan.plan import Plan
from cqstore.migration.verify import read_report
from cqstore.migration.workspace import Workspace
from cqstore.store.comparing.verified_queues import (
    KnownFile,
    VerifiedQueues,
    file_digests,
    store_digests,
)
from cqstore.store.path_kind import exists
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.settings.config import StoreConfig


def is_as_compared(space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig) -> bool:
    """Return whether old queues, log and journals are unchanged since the comparison.

    Also require that the comparison covered everything: the log ended with the planned units.

    Raises:
        StoreIOError: the files cannot be listed.
    """
    known = _known(space, plan, layout, config)
    if known is None or plan.max_phy_offset != plan.complete_to:
        return False
    if read_report(space.report).result.notes.later:
        return False
    digests = store_digests(layout.paths, plan.source, layout.log_folders)
    return all(each in known for each in digests)


def known_queues(
    space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig
) -> KnownFile | None:
    """Return the file that shows which old queues are unchanged since the comparison, or ``None``.

    The log files up to the end of the plan must be unchanged or expired.

    Raises:
        StoreIOError: the files cannot be looked at.
    """
    known = _known(space, plan, layout, config)
    logs = (file_digests(folder, plan.complete_to) for folder in layout.log_folders)
    if known is None or not all(each in known for log in logs for each in log):
        return None
    return KnownFile(space.known_queues.absolute(), plan.complete_to)


def _known(
    space: Workspace, plan: Plan, layout: StoreLayout, config: StoreConfig
) -> VerifiedQueues | None:
    """Return the digests of the last comparison; ``None`` if the state of the store rules them out.

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
    if report.plan is None or report.store != str(paths.root) or not exists(space.known_queues):
        return None
    known = VerifiedQueues.of(KnownFile(space.known_queues, plan.complete_to))
    return known if known.digest == report.plan.known_queues else None
