"""Truncating a sound log at the start of a record, because another log continues there.

The bytes to cut are saved first, then the cut is recorded durably, and the next open of the store
executes it: the store cannot be opened half-way. The last file is removed first, so that at any
time the rest is the beginning of the log, for RocketMQ too.
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
    """Refuse to truncate at an offset that is not the end of sound records.

    Raises:
        RefusedStoreError: no sound records end there.
    """
    if phy_offset <= log.min_phy_offset() or last_before(log, phy_offset, rules) is None:
        raise RefusedStoreError(
            f"cannot cut the log at {phy_offset}: no valid record ends there",
            path=log.files.folder, phy_offset=phy_offset,
        )  # fmt: skip


def save_behind(log: CommitLog, phy_offset: int, end: int, folder: Path) -> list[SavedTail]:
    """Save the bytes after ``phy_offset`` below ``folder``, durably, one file per log file.

    Up to ``end`` complete records are saved, also those that end with zeros; after it everything
    except zeros.

    Raises:
        StoreIOError, DiskFullError: the bytes could not be saved; the log is unchanged.
    """
    saved: list[SavedTail] = []
    for file, _, last in data_behind(log, phy_offset):
        start = file.file_from_offset
        first = max(phy_offset, start)
        behind = max(start + last, min(end, start + file.file_size))
        saved.append(save_record(log, first, behind - first, folder))
    return saved


def cut_off(log: CommitLog, phy_offset: int) -> None:
    """Remove the bytes after ``phy_offset``, durably; can be repeated.

    ``log`` counts as full, as it does until its end is known.

    Raises:
        StoreIOError: an operation failed; a part may have been removed.
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
