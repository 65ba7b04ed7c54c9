"""Cutting a sound log where one of its records begins, because another log goes on from there.

What is cut is kept first, then the cut is noted durably, and the next open of the store carries
it out: it cannot be opened with a half of it. Files go last one first, so that what is left is the
begin of the log at every instant, for RocketMQ too.
"""

from pathlib import Path

from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.recovering.find_log_end import (
    SavedTail,
    data_behind,
    last_before,
    save_record,
)


def refuse_unsound(log: CommitLog, phy_offset: int, rules: ScanRules) -> None:
    """Refuse to cut where no sound records end.

    Raises:
        RefusedStoreError: none do.
    """
    if phy_offset <= log.min_phy_offset() or last_before(log, phy_offset, rules) is None:
        raise RefusedStoreError(
            f"cannot cut the log at {phy_offset}: no valid record ends there",
            path=log.files.folder, phy_offset=phy_offset,
        )  # fmt: skip


def save_behind(log: CommitLog, phy_offset: int, end: int, folder: Path) -> list[SavedTail]:
    """Keep what lies behind ``phy_offset`` below ``folder``, durably, one file a log file.

    Up to ``end`` whole records are kept, also those that end with zeros; behind it all but zeros.

    Raises:
        StoreIOError, DiskFullError: it could not be saved; the log is untouched.
    """
    saved: list[SavedTail] = []
    for file, _, last in data_behind(log, phy_offset):
        start = file.file_from_offset
        first = max(phy_offset, start)
        behind = max(start + last, min(end, start + file.file_size))
        saved.append(save_record(log, first, behind - first, folder))
    return saved


def cut_off(log: CommitLog, phy_offset: int) -> None:
    """Remove what lies behind ``phy_offset``, durably; can be done again.

    ``log`` counts as full, as it does until its end is known.

    Raises:
        StoreIOError: the disk refused; a part may be gone.
    """
    if phy_offset >= log.files.end_offset() or not data_behind(log, phy_offset):
        return
    log.files.truncate(phy_offset)
    file = log.files.find(phy_offset)
    if file is not None:
        position = phy_offset - file.file_from_offset
        file.rewrite(position, bytes(min(BLANK_SIZE, file.file_size - position)))
        file.zero(position)
    log.set_end(log.files.end_offset())
