"""Claims of the checkpoint and the synced mark, withdrawn before they become false."""

from cqstore.store.index.index_service import IndexService
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.recovering.find_log_end import last_before


def withdraw(checkpoint: StoreCheckpoint, index: IndexService | None, queues_from: int) -> None:
    """Withdraw the checkpoint's claims if queues or index have fewer records.

    They are being rebuilt then: an interrupted rebuild would count as complete up to the
    checkpoint. ``queues_from``: how far the queues of the checkpoint's backend are complete.
    """
    fields = checkpoint.fields
    claimed = fields.logics_phy_offset > queues_from
    changes = {}
    if claimed or (queues_from <= 0 and fields.logics_msg_timestamp > 0):
        changes = {"logics_msg_timestamp": 0, "logics_phy_offset": 0}
    if index is not None and index.index_timestamp < fields.index_msg_timestamp:
        changes["index_msg_timestamp"] = index.index_timestamp
    if changes:
        checkpoint.update(**changes)
        checkpoint.flush()


def vouch_no_further(checkpoint: StoreCheckpoint, mark: SyncedMark, end: int) -> bool:
    """Withdraw claims about records that are about to be cut.

    Otherwise a log that a crash left after the cut would count as damaged, and records written in
    their place as dispatched. Returns whether there were claims about the queues.
    """
    fields, changes = checkpoint.fields, {}
    if fields.confirm_phy_offset >= max(end, 1):
        changes["confirm_phy_offset"] = 0
    of_queues = fields.logics_phy_offset >= max(end, 1)
    if of_queues:
        changes |= {"logics_msg_timestamp": 0, "logics_phy_offset": 0}
    if changes:
        checkpoint.update(**changes)
        checkpoint.flush()
    mark.begin(end)
    return of_queues


def vouch_for_queues(
    checkpoint: StoreCheckpoint, log: CommitLog, end: int, rules: ScanRules
) -> None:
    """Advance the checkpoint: the queues have all records before ``end``, on disk.

    A recovery after a crash starts from it. Without it the log would be replayed from its
    beginning, which would restore queues that were deleted by a program without a journal of
    deletions.
    """
    last = last_before(log, end, rules)
    if last is not None:
        checkpoint.update(
            logics_msg_timestamp=last.store_timestamp, logics_phy_offset=last.phy_offset
        )
        checkpoint.flush()
