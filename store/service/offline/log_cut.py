"""Truncation of the log of a store that is not open, see ``cut_off``."""

from dataclasses import dataclass
from pathlib import Path

from cqstore.store.journals.begun_cut import begin_cut
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.progress import Progress, noop
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.recovering.cut_off import refuse_unsound, save_behind
from cqstore.store.service.recovering.find_log_end import SavedTail
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import StoreConfig


@dataclass(frozen=True, slots=True)
class LogCut:
    """The result of a truncation of the log."""

    saved: list[SavedTail]
    """The saved bytes after the new end."""
    report: RecoveryReport
    """The report of the opening that executed it."""


def cut_log(
    root: Path,
    config: StoreConfig,
    phy_offset: int,
    end_phy_offset: int,
    lock: StoreLock,
    progress: Progress = noop,
) -> LogCut:
    """End the log of the store in ``root`` at ``phy_offset``, where a record begins.

    ``end_phy_offset`` is the end of its last record, if known; later bytes other than zero are
    saved too. The caller holds the store's ``lock``, which is released once the truncation is
    recorded: the next open of the store executes it.

    Raises:
        RefusedStoreError: the store can only be read, or no sound records end there; nothing was
            changed.
        DiskFullError, StoreIOError: the bytes could not be saved, and nothing was changed; or a
            later step failed, and the next opening continues.
    """
    layout, config = resolve_layout(root, config, read_only=False)
    log = CommitLog(layout.log_folders, config, read_only=True)
    log.load()
    try:
        log.set_end(log.files.end_offset())
        rules = ScanRules(config.check_crc_on_recover, config.force_verify_prop_crc)
        refuse_unsound(log, phy_offset, rules)
        saved = save_behind(log, phy_offset, end_phy_offset, layout.paths.cut)
    finally:
        log.close()
    begin_cut(layout.paths, phy_offset)
    lock.release()
    with MessageStore.open(root, config, housekeeping=False, progress=progress) as store:
        return LogCut(saved, store.report)
