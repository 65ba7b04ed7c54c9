"""Recovery: restores a complete store from the files of a stopped or crashed writer.

After a clean stop the log's end is checked and the rest trusted; after a crash the log is scanned
from the offset where the queues may lack units. Records that the queues or the index lack are
dispatched, queues that are ahead of the log are truncated, a torn tail is saved and cut. All of it
can be repeated at any time with the same result.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``.
"""

import time
from collections.abc import Callable, Collection, Iterator
from itertools import chain

from cqstore.store.broker_files.topic_positions import TopicPositions
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreConfigError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.files import sync_below
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.begun_cut import begun_cut, end_cut
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backends import queue_folders
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import is_queued
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules
from cqstore.store.service.dispatching.replay import Replay, ReplayResult
from cqstore.store.service.layout.store_layout import is_controlled
from cqstore.store.service.recovering import claims
from cqstore.store.service.recovering.cut_off import cut_off
from cqstore.store.service.recovering.find_log_end import (
    data_behind,
    end_behind,
    has_lost_files,
    lacks_a_sector,
    last_on_disk,
    refuse_lost_files,
    save_tail,
    scan_start,
    valid_record_behind,
    was_on_disk,
    whole_records,
)
from cqstore.store.service.recovering.kept_log import KeptLog
from cqstore.store.service.recovering.pass_over import PassOver
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)


class Recovery:
    """One recovery of one store; call ``run`` once, after everything is loaded."""

    def __init__(
        self,
        paths: StorePaths,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        checkpoint: StoreCheckpoint,
        report: RecoveryReport,
        deleted: DeletedTopics,
    ) -> None:
        self._paths = paths
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._report = report
        self._deleted = deleted
        self._mark = SyncedMark(paths)
        self._rules = ScanRules(config.check_crc_on_recover, config.force_verify_prop_crc)
        self._kept: KeptLog | None = None
        self._controlled = is_controlled(paths, config)
        self._confirmed = last_on_disk(checkpoint, controlled=self._controlled)
        self._passing = PassOver(paths, log, queues, self._rules, deleted.has_record)
        self.last: ScannedRecord | None = None
        """The last scanned record."""

    # ---- read-only

    def find_end(self) -> RecoveryReport:
        """Find the end of the log in memory; the queues are not changed.

        Damage before it is reported, and records after the damage can be read.
        """
        report, log = self._report, self._log
        report.cut_at = begun_cut(self._paths)
        if report.last_exit_ok:
            wanted = self._queues.dispatch_from_phy_offset()
        else:
            wanted = log.files.end_offset()
        start = self._start(wanted)
        result = ReplayResult()
        try:
            for record in chain.from_iterable(self._scan(start)):
                result.note_several(record, record, 1)
                self._note_undispatched(record, wanted)
        except CorruptionError as exc:
            result.fault = exc
        end = self._end_of(start, result)
        newest = max(self._queues.watermarks().values())
        if self._damage(end, newest):
            report.damage = result.fault or TruncatedRecordError(
                "the log ends before records that were on disk", path=self._paths.commit_log,
                phy_offset=end,
            )  # fmt: skip
            known = newest if report.last_exit_ok else end
            end = max(end_behind(log, end, self._rules), min(known, log.files.end_offset()))
            report.end_phy_offset = end
        behind = data_behind(log, end)
        report.dropped_bytes = sum(last - first for _, first, last in behind)
        report.first_bad = report.damage or (result.fault if behind else None)
        log.set_end(end)
        log.files.is_end_known = True
        return report

    def _note_undispatched(self, record: ScannedRecord, dispatched_to: int) -> None:
        """Record the first record without a unit; a clean stop has dispatched every record."""
        report = self._report
        if report.undispatched_from is None and record.phy_offset >= dispatched_to:
            is_deleted = self._deleted.has_record(record.topic, record.phy_offset)
            if (
                report.last_exit_ok
                and is_queued(record.sys_flag)
                and not is_deleted
                and not self._may_wait(record)
            ):
                report.undispatched_from = record.phy_offset

    def _may_wait(self, record: ScannedRecord) -> bool:
        """Return whether a broker of a set left the record undispatched: not all replicas had it.

        Source: RocketMQ ``ReputMessageService.getReputEndOffset``.
        """
        end = record.phy_offset + record.size
        return self._controlled and end > self._checkpoint.fields.confirm_phy_offset

    # ---- read-write

    def keep_log(self, writer: str) -> None:
        """Do not write the log, for the reason ``writer`` (``StoreLayout``); empty: write it."""
        if writer:
            self._kept = KeptLog(self._paths, self._log, writer, self._report)

    def run(
        self,
        replay: Replay,
        cut_at: int | None,
        pass_over: Collection[int] = (),
        progress: Progress = noop,
    ) -> RecoveryReport:
        """Recover on disk; ``progress`` is called with phy offsets from time to time.

        Raises:
            RefusedStoreError: the log is damaged at an offset that is neither ``cut_at`` nor in
                ``pass_over``. Records before it may have been dispatched, and skipped; the next
                opening detects that there was more. Nothing else was changed.
            StoreConfigError: ``cut_at`` or one of ``pass_over`` is not where the log is damaged.
            QueueGapError: the log and a queue contradict each other.
        """
        report, log = self._report, self._log
        if self._kept is not None:
            self._kept.refuse_changes(cut_at, pass_over)
        expired = self._finish_interrupted()
        cut_at = report.cut_at if cut_at is None else cut_at
        queues_from, index_from = self._dispatch_from()

        def from_there(start: int) -> ReplayResult:
            progress(start)
            replay.begin(start, queues_from)
            return replay.run(self._scan(start), queues_from, index_from, progress)

        wanted = min(at for at in (queues_from, index_from, cut_at, *pass_over) if at is not None)
        newest = max(report.watermarks.values())
        fault = self._dispatch(from_there, wanted, newest, cut_at, {*pass_over})
        end = report.end_phy_offset
        anew = self._truncate(end, fault)
        # After a rebuild, and if one may have been interrupted when its queues were on disk.
        if not report.last_exit_ok or queues_from <= self._low():
            self._restore(expired)
        self._mend_index(replay, end)
        if anew or not report.last_exit_ok:
            self._queues.flush()
        log.files.sync()  # removed files must not reappear after this
        if self._queues.catch_up() or (anew and self._queues.counts_in_checkpoint):
            claims.vouch_for_queues(self._checkpoint, log, end, self._rules)
        self._queues.allow_expiry(log.min_phy_offset())
        end_cut(self._paths)
        return report

    def _finish_interrupted(self) -> ExpiredQueues:
        """Finish operations that a crash interrupted; return the journal of expired queues."""
        expired = ExpiredQueues(self._paths.expired_queues)
        if not self._report.last_exit_ok:
            self._sync_found()
            self._deleted.cut_torn_end()
            expired.cut_torn_end()
        self._finish_cut()
        self._finish_deletions(expired)
        return expired

    def _dispatch_from(self) -> tuple[int, int | None]:
        """Return from where queues and index lack records; ``None``: there is no index.

        The checkpoint claims no more than they have from then on.
        """
        queues_from = self._queues.dispatch_from_phy_offset()
        marks = self._report.watermarks = self._queues.watermarks()
        counting = [each.name for each in self._queues.backends() if each.counts_in_checkpoint]
        known = min([marks[name] for name in counting], default=queues_from)
        claims.withdraw(self._checkpoint, self._index, known)
        index_from = self._index.resume_phy_offset() if self._index else None
        if index_from is None and self._index is not None:
            index_from = queues_from  # a writer that stops dispatches to both, or to neither
        return queues_from, index_from

    def _truncate(self, end: int, fault: CorruptionError | None) -> bool:
        """Truncate log, mark and queues at ``end``; return whether claims were withdrawn."""
        report, log = self._report, self._log
        if self._kept is not None:
            self._kept.set_end(end)
            report.queues_cut = self._queues.truncate_dirty(end)
            self._deleted.fit(log.min_phy_offset(), end)
            return False
        was_more = self._save_tail(end, fault)
        if not report.last_exit_ok and self._mark.is_known:
            log.write_again(self._mark.phy_offset, end)  # its last sync may have failed
        anew = claims.vouch_no_further(self._checkpoint, self._mark, end)
        log.mark = self._mark
        report.queues_cut = self._queues.truncate_dirty(end)
        if len(log.files.folders) > 1:  # units must not outlive their log files, see has_lost_files
            self._queues.flush()
        log.truncate(end, is_blank=report.last_exit_ok and not was_more)
        self._deleted.fit(log.min_phy_offset(), end)
        return anew

    def _finish_cut(self) -> None:
        self._report.cut_at = begun_cut(self._paths)
        if self._report.cut_at is not None:
            cut_off(self._log, self._report.cut_at)

    def _finish_deletions(self, expired: ExpiredQueues) -> None:
        """Delete the topics whose deletion was interrupted."""
        if begun := self._deleted.unfinished():
            _LOG.warning("a deletion of topics was interrupted, deleting them again: %s", begun)
            with TopicPositions(self._paths.config).deleting(begun):
                self._queues.delete_topics(begun)
            expired.forget(begun)  # otherwise their queues would continue at their old ends
            self._deleted.finish(begun)

    def _dispatch(
        self,
        replay: Callable[[int], ReplayResult],
        wanted: int,
        newest: int,
        cut_at: int | None,
        pass_over: set[int],
    ) -> CorruptionError | None:
        """Replay the log to its end, skipping allowed records; return why it ends there."""
        unfinished = self._unfinished()
        start = self._start(min([wanted, *unfinished]))
        result = replay(start)
        end = self._end_of(start, result)
        while end in unfinished or (end in pass_over and self._damage(end, newest)):
            unfinished.discard(end)
            pass_over.discard(end)
            self._give_up(end, result.last)
            result.join(replay(end))
            end = self._end_of(start, result)
        self._report.dispatched_units = result.units
        self._report.restarts = result.restarts
        self._refuse_damage(end, newest, result.fault, cut_at)
        self._refuse_sound(pass_over)
        self._passing.forget_unfinished()
        return result.fault

    def _save_tail(self, end: int, fault: CorruptionError | None) -> bool:
        """Save the bytes after the log's end, before they are cut; return whether there are any."""
        behind = data_behind(self._log, end)
        if behind:
            report = self._report
            report.dropped_bytes = sum(last - first for _, first, last in behind)
            report.first_bad = fault
            report.saved = save_tail(self._log, end, self._paths.cut)
            _LOG.warning("cutting %d bytes after the end of the log", report.dropped_bytes)
        return bool(behind)

    def _sync_found(self) -> None:
        """Sync the data of the last writer, which may be only in the page cache.

        A flush of ours syncs only what we have written, and records that everything before it is on
        disk.

        Raises:
            StoreIOError: the sync failed.
        """
        paths = self._paths
        folders = [
            *self._log.files.folders, paths.root, *queue_folders(paths), paths.index, paths.own,
        ]  # fmt: skip
        with os_errors("sync the files of the last writer", paths.root):
            sync_below(folders)

    def _restore(self, expired: ExpiredQueues) -> None:
        """Restore, after a rebuild, the next offsets of queues without records in the log."""
        for key, end in expired.ends().items():
            # Remaining units of such a queue may be older than the line, and are expired too.
            low, high = self._queues.queue(*key).ends()
            if low == high < end:
                self._queues.restore_end(*key, end)

    def _start(self, wanted: int) -> int:
        """Return where to start the scan so that it finds the end and covers ``wanted``."""
        start = scan_start(
            self._log,
            wanted,
            self._checkpoint.fields.confirm_phy_offset,
            self._rules,
            trust_wanted=self._report.last_exit_ok,
        )
        self._report.start_phy_offset = start
        return start

    def _scan(self, start: int) -> Iterator[RecordScan]:
        blocks = self._log.scan_blocks(start, rules=self._rules)
        if self._report.last_exit_ok:
            return blocks
        synced = max(self._mark.phy_offset, self._confirmed + 1 if self._confirmed > 0 else 0)
        return whole_records(self._log, blocks, synced)

    def _end_of(self, start: int, result: ReplayResult) -> int:
        """Return the end of the log from a scan that started at ``start``, and record the scan."""
        report, self.last = self._report, result.last
        fault = result.fault
        end = self._log.max_phy_offset()
        if fault is not None and fault.phy_offset is not None:
            end = fault.phy_offset
        report.scanned_records = result.records
        report.scanned_bytes = max(end - start, 0)
        report.end_phy_offset = end
        return end

    def _refuse_damage(
        self, end: int, newest: int, fault: CorruptionError | None, cut_at: int | None
    ) -> None:
        """Refuse to cut data that was on disk, or later valid records, without ``cut_at``."""
        damage = self._damage(end, newest)
        if damage and self._kept is not None:
            self._kept.refuse_damage(end, fault, damage)
        if not damage and cut_at is not None and cut_at != end:
            raise StoreConfigError(
                f"the log is not damaged at {cut_at}: it ends at {end}", path=self._paths.commit_log
            )
        if damage and cut_at != end:
            if self._report.last_exit_ok:  # nothing else shows it to the next open
                self._remember(end)
            refuse_lost_files(self._log, newest, end)
            raise RefusedStoreError(
                f"the log is damaged ({fault.reason if fault else 'no record'}) and {damage}. "
                f"To lose only this record, run cqstore recover --pass-over {end}; "
                f"to lose this record and all that follow, use --cut-at {end}",
                path=self._paths.commit_log,
                phy_offset=end,
            )

    def _remember(self, end: int) -> None:
        """Record durably that there was more on disk than the records before ``end``.

        They may be dispatched by now: the queues then end where the log would, as after a clean
        stop, and the next opening would cut what this one refuses to cut.
        """
        self._mark.begin(max(self._mark.phy_offset, end + 1))
        self._mark.close()

    def _unfinished(self) -> set[int]:
        """Return the offsets of records that an interrupted open was about to skip.

        Empty if RocketMQ may have used the store since: then the operator must allow it again.
        """
        record = self._passing.unfinished()
        if record is None or not self._mark.phy_offset:
            return set()
        return {StoredMessage(record).phy_offset}

    def _give_up(self, phy_offset: int, before: ScannedRecord | None) -> None:
        timestamp = before.store_timestamp if before is not None else time.time_ns() // 1_000_000
        passed = self._passing.run(phy_offset, timestamp)
        self._report.passed_over.append(passed)
        _LOG.warning("gave up the damaged record at %d: %s", phy_offset, passed)

    def _refuse_sound(self, places: set[int]) -> None:
        """Refuse to skip records that are not damaged, unless they were skipped before."""
        for at in places:
            try:
                done = self._log.message(at).is_passed_over
            except CorruptionError:
                done = False
            if not done:
                raise StoreConfigError(
                    f"the log is not damaged at {at}", path=self._paths.commit_log
                )

    def _damage(self, end: int, newest: int) -> str:
        """Return what would be lost if the log ended at ``end``; empty: nothing, it is cut there.

        ``end`` is where the scan found an invalid record, and ``newest`` the phy offset up to which
        a backend has dispatched records. Lost would be a record that was on disk once, or a later
        valid one.

        If a writer stopped cleanly at this very end, it has left the bytes after it: RocketMQ
        truncates a log without erasing them. The same holds for a power failure, if a page is
        missing after the data that was certainly on disk: data after it was never durable. That
        backends have no record does not prove that the log is empty: their queues may be lost.
        """
        clean = self._report.last_exit_ok
        if self._was_there(end, newest):
            survivor = valid_record_behind(self._log, end)
            if survivor is None:
                return "this record was on disk"
        elif self._low() < end == newest if clean else lacks_a_sector(self._log, end):
            return ""
        else:
            survivor = valid_record_behind(self._log, end)
        return "" if survivor is None else f"a valid record follows at {survivor}"

    def _low(self) -> int:
        """Return the start of the log."""
        return max(self._log.min_phy_offset(), 0)

    def _was_there(self, end: int, newest: int) -> bool:
        """Return whether a record that starts at ``end`` was certainly on disk once."""
        if was_on_disk(end, self._mark, self._confirmed) or has_lost_files(self._log, newest):
            return True
        return self._report.last_exit_ok and end < newest

    def _mend_index(self, replay: Replay, end: int) -> None:
        """Remove index files that point after the end, and index the lost keys again."""
        if self._index is None:
            return
        self._report.index_files_cut = self._index.truncate_dirty(end)
        if self._report.index_files_cut:
            again = self._index.resume_phy_offset() or 0
            start = scan_start(self._log, again, again, self._rules, trust_wanted=False)
            result = replay.run(self._log.scan_blocks(start, end, self._rules), end, again)
            if result.fault is not None:
                raise result.fault
