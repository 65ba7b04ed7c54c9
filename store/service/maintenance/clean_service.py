"""CleanService: deletes topics and expired log files.

*Topics*: the journal first, then the queues, see ``DeletedTopics``. *Log files*: a file's records
are read before it is deleted, the file is durably deleted before any of its units may be dropped,
and queues keep their next offset.

Source: RocketMQ ``CleanCommitLogService.deleteExpiredFiles``, ``CleanConsumeQueueService``,
``DefaultMessageStore.cleanUnusedTopic``.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from cqstore.store.broker_files.topic_positions import TopicPositions
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import LMQ_PREFIX, is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.record.scan import ScanRules
from cqstore.store.record.topic_names import is_exempt
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.dispatching.record_units import light_queues
from cqstore.store.service.dispatching.topic_hold import TopicHold
from cqstore.store.service.reading.arguments import listed_texts
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.service.writing.light_quota import LightQuota

_LOG = StoreLogger(__name__)
TOPICS_AT_ONCE = 1000
"""Topics per batch: a put to one of them waits for all topics of the batch."""
ExpiredOffsets = dict[QueueKey, int]
Removing = Callable[[Collection[str]], AbstractContextManager[object]]
"""Removes the offsets in topics, whose queues are deleted in the block."""


class ExpiryReport(NamedTuple):
    """Files that an expiry deleted."""

    log_files: int
    log_bytes: int
    queues: int
    """Queues or queue files that freed space immediately."""
    index_files: int
    min_phy_offset: int
    fault: StoreIOError | None = None
    """Why a file could not be deleted; this file and all later ones still exist."""


def always_due(_topic: str) -> bool:
    """Return True: every topic is deleted."""
    return True


class CleanService:
    """Deletes topics and expired log files of one open store. Any thread may call."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        pending: Pending,
        dispatcher: Dispatcher,
        commit: GroupCommit,
        deleted: DeletedTopics,
        expired: ExpiredQueues,
        quota: LightQuota,
        state: RunningState,
        positions: TopicPositions,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._pending = pending
        self._dispatcher = dispatcher
        self._commit = commit
        self._deleted = deleted
        self._expired = expired
        self._quota = quota
        self._state = state
        self.positions = positions
        """The offsets that are removed with a topic."""
        self.lock = CheckedLock("a deletion, expiry or rebuild")
        """One of these at a time; acquired before the locks of the dispatcher."""
        state.locks.add_outer(self.lock)
        self.in_use: frozenset[str] = frozenset()
        """Topics that must not be deleted: a service of the store reads them."""

    def delete_topics(
        self, topics: Iterable[str], is_due: Callable[[str], bool] = always_due
    ) -> list[str]:
        """Delete topics in batches, see ``MessageStore.delete_topics``; return the deleted topics.

        ``is_due`` is called with each topic while puts to it wait and all earlier messages are in
        its queues. A topic for which it returns False is kept.

        Raises:
            IllegalMessageError: a name is invalid for a topic.
            RefusedStoreError: the store delivers from a topic; nothing was deleted.
            StoreError: as for ``MessageStore.delete_topics``.
        """
        names = list(dict.fromkeys(listed_texts(topics=topics)))
        for name in names:
            self._queues.check_topic(name)
            if name in self.in_use:
                raise RefusedStoreError(
                    f"cannot delete topic {name!r}: the store delivers delayed messages from it."
                    " Close the store, and open it without enableScheduleMessageService"
                )
        self._state.check_writable()
        deleted: list[str] = []
        with self.positions.read_once(names):
            removing = self._removing(names, is_due)
            for first in range(0, len(names), TOPICS_AT_ONCE):
                part = names[first : first + TOPICS_AT_ONCE]
                deleted += self._delete_slice(part, is_due, removing)
        return deleted

    def _removing(self, topics: Collection[str], is_due: Callable[[str], bool]) -> Removing:
        """Return what removes the offsets in a batch, after a check that it is possible.

        If all topics are deleted, and nothing in this process has their offsets, all are removed
        now: a JSON file is written as a whole.
        """
        with self.lock.entry():
            self.positions.check(topics)
        if is_due is not always_due or self.positions.owner is not None:
            return self.positions.deleting
        with self._state.writing(), self.lock.entry():
            self._state.check_writable()
            self.positions.remove(topics)
        return nullcontext

    def _delete_slice(
        self, topics: Sequence[str], is_due: Callable[[str], bool], removing: Removing
    ) -> list[str]:
        """Delete a batch of topics, except those that are not due; return the deleted ones.

        Puts to other topics continue: none of their locks is held while anything is read or
        written. Puts to these topics wait until they are deleted; all units in their queues at that
        time are removed. An exception must fail the store: it drops next offsets that waiting units
        may need, and only the next open completes the deletion that the journal has.
        """
        hold = TopicHold(frozenset(topics))
        with self._state.writing(), self.lock.entry():
            self._state.check_writable()  # it may have been closed before
            self._dispatcher.drain()  # without space for units nothing is begun
            try:
                with self._state.failing():
                    due = self._delete_held(hold, topics, is_due, removing)
            finally:
                hold.end()
            self._deleted.compact(self._log.min_phy_offset())
            return due

    def _delete_held(
        self, hold: TopicHold, topics: Sequence[str], is_due: Callable[[str], bool],
        removing: Removing,
    ) -> list[str]:  # fmt: skip
        """Delete the queues of the due topics of ``hold``, which refuses puts; release it."""
        below = self._hold(hold)
        self._dispatcher.drain()  # earlier puts are deleted with the queues
        due = [topic for topic in topics if is_due(topic)]
        gone, kept = self._light_queues(due), self._light_queues({*topics}.difference(due))
        if due:
            self._commit.flush()
            self._deleted.begin(due, below)
            with removing(due):
                self._queues.delete_topics(due)
            self._expired.forget(due)
            self._deleted.finish(due)
        with self._pending.owner.entry(), self._pending.lock:
            self._quota.release(gone, kept)
            self._pending.offsets.hold(None)
        return due

    def _light_queues(self, topics: Iterable[str]) -> int:
        """Return the number of light queues among ``topics``."""
        light = [topic for topic in topics if topic.startswith(LMQ_PREFIX)]
        return sum(self._queues.queue(topic, 0).max_offset() > 0 for topic in light)

    def _hold(self, hold: TopicHold) -> int:
        """Refuse puts to the topics of ``hold``; return the end of the log before that."""
        pending = self._pending
        with pending.owner.entry(), pending.lock:
            pending.offsets.hold(hold)
            self._quota.hold()
        assigned = pending.offsets.queues_of(hold.topics)  # no further ones are assigned now
        with pending.owner.entry(), pending.lock:
            pending.offsets.forget(assigned)
            return self._log.max_phy_offset()

    def clean_unused_topics(self, retain: Collection[str], *, dry_run: bool) -> list[str]:
        """Delete unused topics, see ``MessageStore.clean_unused_topics``."""
        unused = list(self._unused_topics(frozenset(listed_texts(retain=retain))))
        if not dry_run:
            self.delete_topics(unused)
        return unused

    def _unused_topics(self, retain: Collection[str]) -> Iterator[str]:
        """Yield the topics with queues that are not in ``retain``.

        Never a light queue or a system topic of the broker, which no topic table lists.
        """
        for topic in self._queues.topics():
            if topic not in retain and not is_exempt(topic):
                yield topic

    def delete_expired_files(self, phy_offset: int) -> ExpiryReport:
        """Delete leading log files, see ``MessageStore.delete_expired_files``."""
        self._state.check_log_writable()
        with self._state.writing(), self.lock.entry():
            self._state.check_writable()  # it may have been closed before
            return self._delete_files(phy_offset)

    def _delete_files(self, phy_offset: int) -> ExpiryReport:
        """Delete the log files that end at or before ``phy_offset``, except for the last one."""
        log, files = self._log, self._log.files
        log.commit()
        before = max(log.min_phy_offset(), 0)
        last = files.files()[-1].file_from_offset if files.files() else 0
        end = min(phy_offset - phy_offset % files.file_size, last)
        if end <= before:
            return ExpiryReport(0, 0, 0, 0, before)
        expired = expired_offsets(log, end)
        caught_up = self._dispatcher.when_caught_up
        self._expired.add(caught_up(lambda: self._finished(expired)))  # before the deletion
        return caught_up(lambda: self._delete_before(end, before, expired))

    def _finished(self, expired: ExpiredOffsets | None) -> list[tuple[QueueKey, int]]:
        """Return the queues of ``expired`` that end there; they have no other records left."""
        ends = [(key, at) for key, at in (expired or {}).items() if self._ends_at(key, at)]
        self._commit.flush()  # because the log, not the journal, has the queues with later records
        return ends

    def _delete_before(self, end: int, before: int, expired: ExpiredOffsets | None) -> ExpiryReport:
        """Delete the log files before ``end``, and the units and keys that expire with them."""
        log, files = self._log, self._log.files
        fault = files.delete_before(end)
        minimum = log.min_phy_offset()
        if minimum == before:
            return ExpiryReport(0, 0, 0, 0, before, fault)
        queues = self._queues.clean_expired(minimum, expired)
        index = self._index.delete_expired(minimum) if self._index is not None else 0
        count = (minimum - before) // files.file_size
        return ExpiryReport(count, minimum - before, queues, index, minimum, fault)

    def _ends_at(self, key: QueueKey, queue_offset: int) -> bool:
        return self._queues.queue(*key).max_offset() == queue_offset


def expired_offsets(log: CommitLog, end: int) -> ExpiredOffsets | None:
    """Return each queue with records before ``end``, with the offset after its last one there.

    ``None`` if a damaged record prevents that. Memory: an entry per queue.
    """
    found: ExpiredOffsets = {}
    try:
        for record in log.scan(log.min_phy_offset(), end, ScanRules(check_crc=False)):
            if not is_queued(record.sys_flag):
                continue
            found[QueueKey(record.topic, record.queue_id)] = record.queue_offset + 1
            properties = dispatch_properties(record.properties)
            if properties.multi_dispatch:
                for name, offset in light_queues(record.topic, properties):
                    found[QueueKey(name, 0)] = offset + 1
    except CorruptionError as exc:
        _LOG.warning("an expired log file is damaged, so all queues are checked: %s", exc)
        return None
    return found
