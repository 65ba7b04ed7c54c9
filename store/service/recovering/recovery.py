"""Recovery: from what a stopped or crashed writer left to a store that is whole.

After a clean stop the log's end is proven and the rest trusted; after a crash the log is scanned
from where the queues may lack something. Records that the queues or the index lack are dispatched,
queues that are ahead of the log are cut back, a torn tail is saved and cut. All of it can be done
again at any time with the same outcome.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from cqstore.store.broker_files.topic_positions import TopicPositions
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreConfigError,
    StoreError,
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
from cqstore.store.queue.facts import QueueDamage, QueueRestart
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import is_queued
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules
from cqstore.store.service.dispatching.replay import Replay, ReplayResult
from cqstore.store.service.layout.file_notes import FileNote
from cqstore.store.service.recovering import claims
from cqstore.store.service.recovering.cut_off import cut_off
from cqstore.store.service.recovering.find_log_end import (
    SavedTail,
    data_behind,
    end_behind,
    lacks_a_sector,
    save_tail,
    scan_start,
    valid_record_behind,
    was_on_disk,
    whole_records,
)
from cqstore.store.service.recovering.pass_over import PassedOver, PassOver
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """Findings and actions of the open of a store."""

    last_exit_ok: bool
    read_only: bool
    start_phy_offset: int = 0
    """Where the scan began, bytes from the start of the log."""
    end_phy_offset: int = 0
    """The end of the log."""
    scanned_records: int = 0
    scanned_bytes: int = 0
    dispatched_units: int = 0
    dropped_bytes: int = 0
    """Bytes after the end, up to the last byte that was not zero."""
    first_bad: CorruptionError | None = None
    """Why the log ends at this offset, if there is data after its end."""
    damage: CorruptionError | None = None
    """Read-only: the first damage inside the log, because of which it is not opened otherwise."""
    saved: list[SavedTail] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it surely had every record; read-only: empty."""
    passed_over: list[PassedOver] = field(default_factory=list)
    """Damaged records that were given up."""
    undispatched_from: int | None = None
    """Read-only: the first record that a clean stop had dispatched, and the queues do not know."""
    queues_cut: int = 0
    index_files_cut: int = 0
    index_dropped: str = ""
    """Why the index was moved away and rebuilt."""
    notes: Sequence[FileNote] = ()
    """Notes on unusual files, which are not damage."""
    index_left_out: StoreError | None = None
    """Read-only: why the index cannot be read; an opening to write would rebuild it."""
    written_since: Mapping[str, int] = field(default_factory=dict)
    """Backend that was left behind → phy offset up to which another program has written to it."""
    unfinished_rebuild: bool = False
    """Read-only: single queues were being rebuilt and are not whole."""
    queues_mended: Sequence[QueueKey] = ()
    """Damaged queues that were rebuilt from the log."""
    queues_damaged: Sequence[QueueDamage] = ()
    """Damaged queues that were not; what they lack shows as a hole."""
    cut_at: int | None = None
    """Phy offset at which a requested cut ended the log."""
    restarts: list[QueueRestart] = field(default_factory=list)
    """Queues of which the log holds an older incarnation; the last one won."""

    @property
    def needed(self) -> bool:
        """Return whether there was anything to recover."""
        return bool(
            not self.last_exit_ok
            or self.damage
            or self.cut_at is not None
            or self.passed_over
            or self.dispatched_units
            or self.dropped_bytes
            or self.queues_cut
            or self.index_files_cut
            or self.index_dropped
            or self.queues_mended
            or self.queues_damaged
            or self.unfinished_rebuild
        )


class Recovery:
    """One recovery of one store; ``run`` once, after everything has been loaded."""

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
        self._passing = PassOver(paths, log, queues, self._rules, deleted.has_record)
        self.last: ScannedRecord | None = None
        """The last record that was scanned."""

    # ---- read-only

    def find_end(self) -> RecoveryReport:
        """Find the end of the log in memory; the queues are taken as they are.

        Damage before it is reported, and what lies behind that can be read.
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
        """Note the first record without a unit; a clean stop has dispatched every record."""
        report = self._report
        if report.undispatched_from is None and record.phy_offset >= dispatched_to:
            is_deleted = self._deleted.has_record(record.topic, record.phy_offset)
            if report.last_exit_ok and is_queued(record.sys_flag) and not is_deleted:
                report.undispatched_from = record.phy_offset

    # ---- read-write

    def run(
        self,
        replay: Replay,
        cut_at: int | None,
        pass_over: Collection[int] = (),
        progress: Progress = noop,
    ) -> RecoveryReport:
        """Recover on disk; ``progress`` is called with phy offsets now and then.

        Raises:
            RefusedStoreError: the log is damaged, and neither ``cut_at`` nor one of ``pass_over``
                is that place. Records before it may have been dispatched, and passed over; the
                next opening knows that more was there. Nothing else was changed.
            StoreConfigError: ``cut_at`` or one of ``pass_over`` is not where the log is damaged.
            QueueGapError: the log and a queue contradict each other.
        """
        report, log = self._report, self._log
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
        # Behind a rebuild, and where one may have been interrupted when its queues were on disk.
        if not report.last_exit_ok or queues_from <= self._low():
            self._restore(expired)
        self._mend_index(replay, end)
        if anew or not report.last_exit_ok:
            self._queues.flush()
        log.files.sync()  # whatever files are gone must not come back after this
        if self._queues.catch_up() or (anew and self._queues.counts_in_checkpoint):
            claims.vouch_for_queues(self._checkpoint, log, end, self._rules)
        self._queues.allow_expiry(log.min_phy_offset())
        end_cut(self._paths)
        return report

    def _finish_interrupted(self) -> ExpiredQueues:
        """Finish what a crash interrupted before; return the journal of expired queues."""
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
            index_from = queues_from  # a writer that stops dispatches to both, or to none
        return queues_from, index_from

    def _truncate(self, end: int, fault: CorruptionError | None) -> bool:
        """End the log, its mark and the queues at ``end``; return whether claims went with it."""
        report, log = self._report, self._log
        was_more = self._save_tail(end, fault)
        if not report.last_exit_ok and self._mark.is_known:
            log.write_again(self._mark.phy_offset, end)  # its last sync may have failed
        anew = claims.vouch_no_further(self._checkpoint, self._mark, end)
        log.mark = self._mark
        report.queues_cut = self._queues.truncate_dirty(end)
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
            expired.forget(begun)  # else their queues would go on where they once did
            self._deleted.finish(begun)

    def _dispatch(
        self,
        replay: Callable[[int], ReplayResult],
        wanted: int,
        newest: int,
        cut_at: int | None,
        pass_over: set[int],
    ) -> CorruptionError | None:
        """Replay the log to its end, over what was given up; return why it ends there."""
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
        """Keep what lies behind the end of the log, before it is cut; return whether there is."""
        behind = data_behind(self._log, end)
        if behind:
            report = self._report
            report.dropped_bytes = sum(last - first for _, first, last in behind)
            report.first_bad = fault
            report.saved = save_tail(self._log, end, self._paths.cut)
            _LOG.warning("cutting %d bytes after the end of the log", report.dropped_bytes)
        return bool(behind)

    def _sync_found(self) -> None:
        """Bring to the disk what the last writer left, which may lie in the page cache alone.

        A flush of ours syncs what we have written, and says that all before it is on disk.

        Raises:
            StoreIOError: the disk refused.
        """
        paths = self._paths
        folders = [
            *self._log.files.folders, paths.root, *queue_folders(paths), paths.index, paths.own,
        ]  # fmt: skip
        with os_errors("sync the files of the last writer", paths.root):
            sync_below(folders)

    def _restore(self, expired: ExpiredQueues) -> None:
        """Bring back, after a rebuild, the next offsets of queues that the log no longer names."""
        for key, end in expired.ends().items():
            # What is left of such a queue may be older than the line, and is expired too.
            low, high = self._queues.queue(*key).ends()
            if low == high < end:
                self._queues.restore_end(*key, end)

    def _start(self, wanted: int) -> int:
        """Return where to begin to scan, so that the end is found and ``wanted`` is covered."""
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
        confirmed = self._checkpoint.fields.confirm_phy_offset
        synced = max(self._mark.phy_offset, confirmed + 1 if confirmed > 0 else 0)
        return whole_records(self._log, blocks, synced)

    def _end_of(self, start: int, result: ReplayResult) -> int:
        """Return where the log ends by a scan from ``start``, and note the scan."""
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
        """Refuse to cut what was on disk, or valid records behind, unless ``cut_at`` says so."""
        damage = self._damage(end, newest)
        if not damage and cut_at is not None and cut_at != end:
            raise StoreConfigError(
                f"the log is not damaged at {cut_at}: it ends at {end}", path=self._paths.commit_log
            )
        if damage and cut_at != end:
            if self._report.last_exit_ok:  # nothing else shows it to the next open
                self._remember(end)
            raise RefusedStoreError(
                f"the log is damaged ({fault.reason if fault else 'no record'}) and {damage}. "
                f"To lose only this record, run cqstore recover --pass-over {end}; "
                f"to lose this record and all that follow, use --cut-at {end}",
                path=self._paths.commit_log,
                phy_offset=end,
            )

    def _remember(self, end: int) -> None:
        """Say durably that more was on disk than the records before ``end``.

        They may be dispatched by now: the queues then end where the log would, as after a clean
        stop, and the next opening would cut what this one refuses to.
        """
        self._mark.begin(max(self._mark.phy_offset, end + 1))
        self._mark.close()

    def _unfinished(self) -> set[int]:
        """Return where an interrupted open was about to pass over a record.

        Nowhere if RocketMQ may have had the store since: then the operator is asked again.
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
        """Refuse to pass over what is not damaged, unless that was done before."""
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

        ``end`` is where reading came to something that is no record, and ``newest`` up to which phy
        offset a backend has dispatched records. Lost would be a record that was on disk once, or a
        valid one behind.

        A writer that stopped cleanly at this very end has itself left what lies behind: RocketMQ
        cuts a log without erasing what it cut off. So has a power cut, if behind what was surely on
        disk a page is missing: what follows it was never durable. That backends have no record is
        no proof of an empty log: their queues may be gone.
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
        """Return where the log begins."""
        return max(self._log.min_phy_offset(), 0)

    def _was_there(self, end: int, newest: int) -> bool:
        """Return whether a record that starts at ``end`` was surely on disk once."""
        if was_on_disk(end, self._mark, self._checkpoint):
            return True
        return self._report.last_exit_ok and end < newest

    def _mend_index(self, replay: Replay, end: int) -> None:
        """Remove index files that point behind the end, and index again what that lost."""
        if self._index is None:
            return
        self._report.index_files_cut = self._index.truncate_dirty(end)
        if self._report.index_files_cut:
            again = self._index.resume_phy_offset() or 0
            start = scan_start(self._log, again, again, self._rules, trust_wanted=False)
            result = replay.run(self._log.scan_blocks(start, end, self._rules), end, again)
            if result.fault is not None:
                raise result.fault
