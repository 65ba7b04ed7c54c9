"""ConsumerOffsets: where each group goes on in each queue, kept as a broker keeps it.

A commit is in memory at once and in ``config/consumerOffset.json`` within the interval, at a flush
and at a close. Before the file the log is made durable: a group is never ahead of what a power cut
leaves. So a killed process can lose the commits of an interval, whose messages come again, and no
message is skipped.

Source: RocketMQ ``ConsumerOffsetManager``, ``BrokerConfig.flushConsumerOffsetInterval``.
"""

import os
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from cqstore.broker.groups.group_offsets import OffsetChange, Target, changed, copy, forget, reset
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table, readings
from cqstore.broker.metadata.owned_table import OwnedTable
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.embedded.names import check_group_name, is_topic_name
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch, Wakeup
from cqstore.store.errors import (
    RefusedStoreError,
    StoreClosedError,
    StoreError,
    StoreStateError,
)
from cqstore.store.java_numbers import INT_MAX
from cqstore.store.progress import noop
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.runtime.watched_thread import Worker

_LOG = StoreLogger(__name__)
INTERVAL_SECONDS = 5.0
"""Between two writes of what has changed, as a broker's."""
_ONLY_BY_CALL = "consumer offsets are now written only by flush and close"


class ConsumerOffsets:
    """The offsets of all groups of one open store. Any thread; a lock is held for moments."""

    def __init__(
        self,
        store: MessageStore,
        interval: float = INTERVAL_SECONDS,
        on_deleted: Callable[[Collection[str]], object] = noop,
    ) -> None:
        """Read what was kept. Offsets beyond the end of their queue are set back.

        ``on_deleted`` is called with topics whose queues were deleted, after that.

        Raises:
            CorruptionError, RefusedStoreError, StoreIOError: as for ``OwnedTable``.
        """
        self._components, self._owner = components_of(store), weakref.ref(store)
        self._interval = interval
        self._on_deleted = on_deleted
        self._table = OwnedTable(self._components.paths, Table.OFFSETS)
        self._offsets = {key: dict(row) for key, row in self._table.found.offsets.items()}
        self._lock = CheckedLock("a commit of a consumer offset")  # guards _offsets, _changes
        self._writing = CheckedLock("a write of consumer offsets")  # one write at a time
        self._changes = self._written = 0
        self._incarnations: Counter[str] = Counter()  # of topics that were deleted meanwhile
        self._deleting: frozenset[str] = frozenset()
        self._wake, self._stop = Wakeup(), Latch()
        self._closed = False
        self._pid = os.getpid()
        self.failures = 0
        """Writes of the thread that failed; each is tried again."""
        self.worker = Worker("cqstore-offsets", self._run, self._give_up, _ONLY_BY_CALL)
        self._set_back()

    def start(self) -> None:
        """Start the thread that writes. It ends with the store, also with one that is dropped."""
        self._components.services.append(self)
        self.worker.start()

    # ---- asking

    @property
    def is_closed(self) -> bool:
        """Return whether it takes no more commits."""
        return self._closed

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset at which ``group`` goes on; ``None``: it has committed none there."""
        with self._lock.entry():
            return self._offsets.get(_key(topic, group), {}).get(queue_id)

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id → offset of all queues of ``topic`` in which ``group`` has one."""
        with self._lock.entry():
            return dict(self._offsets.get(_key(topic, group), {}))

    def page(self, at: int, count: int) -> list[tuple[str, str, dict[int, int]]]:
        """Return group, topic and offsets of ``count`` rows from row ``at`` on, for figures.

        A row whose key can be split into topic and group in several ways, or in none, or whose
        topic no topic can be, is returned without offsets, so that rows keep their numbers. Past
        the last row there is less, or nothing.
        """
        found: list[tuple[str, str, dict[int, int]]] = []
        with self._lock.entry():
            rows = [(key, dict(row)) for key, row in islice(self._offsets.items(), at, at + count)]
        for key, row in rows:
            (topic, group), *others = [*readings(key)] or [("", "")]
            known = not others and is_topic_name(topic)
            found.append((group, topic, {
                queue_id: offset for queue_id, offset in row.items()
                if known and 0 <= queue_id <= INT_MAX
            }))  # fmt: skip
        return found

    # ---- committing

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, incarnation: int | None = None
    ) -> int:
        """Have ``group`` go on at ``offset``, never further back; return where it goes on.

        In memory: see ``flush`` for what makes it durable. Whether there is such a queue is not
        asked. With ``incarnation`` nothing is committed once the topic has another one.

        Raises:
            IllegalMessageError: no group could have the name.
            RefusedStoreError: ``offset`` is no whole number from 0 on.
            StoreClosedError: it is closed.
        """
        self._check(group, offset)
        with self._lock.entry():
            self._check_open()
            if self._is_gone(topic, incarnation):
                return self._offsets.get(_key(topic, group), {}).get(queue_id, 0)
            row = self._offsets.setdefault(_key(topic, group), {})
            before = row.get(queue_id)
            if before is not None and offset <= before:
                return before
            self._changes += 1  # first: of a commit that is cut short a write is one too many
            row[queue_id] = offset
        self._wake.set()
        return offset

    def begin(
        self, group: str, topic: str, queue_ids: Iterable[int], first: Callable[[int], int]
    ) -> None:
        """Commit ``first`` of each queue in which ``group`` has committed nothing.

        Raises:
            StoreError: as for ``commit``.
        """
        incarnation = self.incarnation(topic)  # first: what ``first`` finds may be deleted then
        there = self.of_topic(group, topic)
        for queue_id in queue_ids:
            if queue_id not in there:
                self.commit(group, topic, queue_id, first(queue_id), incarnation)

    def assign(
        self, group: str, topic: str, queue_id: int, offset: int, incarnation: int | None = None
    ) -> None:
        """Have ``group`` go on at ``offset``, further back too. In memory, as ``commit``.

        Raises:
            StoreError: as for ``commit``.
        """
        self._check(group, offset)
        with self._lock.entry():
            self._check_open()
            if self._is_gone(topic, incarnation):
                return
            self._changes += 1
            self._offsets.setdefault(_key(topic, group), {})[queue_id] = offset
        self._wake.set()

    def _is_gone(self, topic: str, incarnation: int | None) -> bool:
        """Return whether a commit is of messages whose topic was deleted; under the lock."""
        if topic in self._deleting:
            return True
        return incarnation is not None and incarnation != self._incarnations[topic]

    # ---- changes that are asked for, durable when they return

    def reset(
        self, group: str, topic: str, target: Target, queue_id: int | None = None
    ) -> list[OffsetChange]:
        """Have ``group`` go on where ``target`` says, in all queues of ``topic`` or in one.

        Raises:
            NoSuchQueueError: there is none.
            RefusedStoreError: an offset is outside of its queue, or the topic was deleted
                meanwhile; nothing was changed.
            StoreError: it cannot be written; it holds in memory.
        """
        check_group_name(group)
        return self._change(
            group, lambda found: reset(self._store, found, group, topic, queue_id, target)
        )

    def copy(self, source: str, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Have ``group`` go on where ``source`` does, in ``topics`` or in all but its retries.

        Raises:
            RefusedStoreError: ``source`` has no offsets there, or a topic was deleted meanwhile;
                nothing was changed.
            StoreError: as for ``reset``.
        """
        check_group_name(group)
        return self._change(
            group, lambda found: self._some(source, copy(found, source, group, topics))
        )

    def forget(self, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Remove the offsets of ``group``, in ``topics`` or all: it begins as a new group does.

        Raises:
            RefusedStoreError: it has none; nothing was changed.
            StoreError: as for ``reset``.
        """
        return self._change(group, lambda found: self._some(group, forget(found, group, topics)))

    def forget_topic(self, topic: str) -> None:
        """Remove what groups have in ``topic``, which is written for the first time.

        Durable when it returns. A key that can be split in several ways stays if it is in doubt.

        Raises:
            StoreError: it cannot be written; it holds in memory.
        """
        if self._forget([topic]):
            self.flush()

    @contextmanager
    def deleting(self, topics: Collection[str]) -> Iterator[None]:
        """Remove what groups have in ``topics``, durably, and take no commits there until the exit.

        At both ends another incarnation of each topic begins, see ``incarnation``.

        Raises:
            StoreError: it cannot be written; it holds in memory.
        """
        with self._lock.entry():
            self._deleting = frozenset(topics)
            self._incarnations.update(topics)
        try:
            self._forget(topics)
            self._write(self._components.commit.flush)  # inside of a deletion
            yield
        finally:
            with self._lock.entry():
                self._incarnations.update(topics)
                self._deleting = frozenset()
            self._on_deleted(topics)

    def incarnation(self, topic: str) -> int:
        """Return a number that is another one after each deletion of ``topic``."""
        return self._incarnations[topic]

    def position_beyond(self, topic: str, queue_id: int) -> int:
        """Return where a group goes on whose offset is beyond the end of a queue.

        A topic that was deleted has new messages only: the group gets its first one. Any other
        queue has lost its end (a power cut, a log that was cut): the group goes on at the end, as a
        broker has it do, for it has consumed what is left.

        Source: RocketMQ ``DefaultMessageStore.getMessage`` (``OFFSET_OVERFLOW_BADLY``).
        """
        if self._incarnations[topic] or self._components.deleted.has_record(topic, 0):
            return self._store.min_offset(topic, queue_id)
        return self._store.max_offset(topic, queue_id)

    def _forget(self, topics: Collection[str]) -> bool:
        """Remove what groups have in ``topics``, in memory; return whether there was anything."""
        keys = TopicKeys(self._components.paths, topics)
        with self._lock.entry():
            kept = {key: row for key, row in self._offsets.items() if key not in keys}
            is_other = self._table.forget(keys) or len(kept) < len(self._offsets)
            if is_other:
                self._changes += 1
                self._offsets = kept
        return is_other

    def _some(self, group: str, changes: Iterable[OffsetChange]) -> list[OffsetChange]:
        found = list(changes)
        if not found:
            raise RefusedStoreError(
                f"no consumer offsets found for group {group!r}", path=self._components.paths.root
            )
        return found

    def _change(
        self, group: str, plan: Callable[[BrokerMetadata], Iterable[OffsetChange]]
    ) -> list[OffsetChange]:
        """Make the changes that ``plan`` returns for what there is, durably.

        Raises:
            RefusedStoreError: a topic was deleted since; nothing was changed.
            StoreError: as for ``flush``, or as ``plan`` raises it.
        """
        with self._lock.entry():
            self._check_open()
            incarnations = self._incarnations.copy()
            offsets = {key: dict(row) for key, row in self._offsets.items()}
        config = self._components.paths.config
        changes = [*plan(BrokerMetadata(Form.JSON, config, offsets=offsets))]
        with self._lock.entry():
            for each in changes:
                if each.after is not None and self._is_gone(each.topic, incarnations[each.topic]):
                    raise RefusedStoreError(
                        f"topic {each.topic!r} was deleted meanwhile: no offset of group"
                        f" {group!r} was changed. Call again",
                        path=self._components.paths.root,
                    )
            self._changes += 1
            self._offsets = changed(self._offsets, group, changes)
        self.flush()
        return changes

    # ---- writing

    def flush(self) -> None:
        """Make durable what was committed before, and the messages up to there.

        Raises:
            StoreError: it cannot be written; what was committed holds in memory.
        """
        self._write(self._store.flush_log)

    def _write(self, flush_log: Callable[[], object]) -> None:
        """Write what has changed, after the log is durable."""
        with self._writing.entry():
            if self._changes == self._written:
                return
            with self._lock.entry():
                changes = self._changes
                rows = {key: dict(row) for key, row in self._offsets.items() if row}
            flush_log()  # first: no group is ahead of the log on disk
            self._table.write(rows)
            self._written = changes

    def close(self) -> None:
        """Write what has changed, and end the thread; while the store is open. In a child: nothing.

        Raises:
            StoreError: as for ``flush``; what was not written is lost.
        """
        if self._pid != os.getpid():
            return
        self._stop.set()
        self._wake.set()
        self.worker.end()
        try:
            self.flush()
        finally:
            self._closed = True

    def stop(self) -> None:
        """End the thread, and write nothing: the store is being closed."""
        self._stop.set()
        self._wake.set()
        self.worker.end()

    def halt(self) -> None:
        """End the thread, and take no more commits: the store was dropped."""
        self.stop()
        self._closed = True

    @property
    def _store(self) -> MessageStore:
        """Return the store, which the thread does not keep.

        Raises:
            StoreClosedError: it was dropped.
        """
        if (store := self._owner()) is None:
            raise StoreClosedError("the log is closed", path=self._components.paths.root)
        return store

    def _run(self) -> None:
        """Write what was committed, once an interval, until the end."""
        while not self._stop.is_set():
            self._wake.wait()
            if self._stop.wait(self._interval):
                return
            try:
                self.flush()
            except StoreStateError as exc:
                _LOG.warning("consumer offsets are no longer written: %s", exc)
                return
            except StoreError as exc:
                self.failures += 1
                _LOG.warning("cannot write consumer offsets, retrying: %s", exc)
                self._wake.set()

    def _give_up(self, exc: BaseException) -> None:
        self.failures += 1
        _LOG.error("%s: %s", _ONLY_BY_CALL, exc)

    # ---- what is asked before

    def _set_back(self) -> None:
        """Set offsets back that are beyond the end of their queue, see ``position_beyond``.

        A queue that is not there says nothing: another program may know it.
        """
        for key, row in self._offsets.items():
            ways = list(readings(key))
            if len(ways) != 1 or not is_topic_name(ways[0][0]):
                continue
            topic, group = ways[0]
            for queue_id, offset in row.items():
                if not 0 <= queue_id <= INT_MAX:
                    continue
                end = self._store.max_offset(topic, queue_id)
                if 0 < end < offset:
                    row[queue_id] = self.position_beyond(topic, queue_id)
                    log_beyond(group, QueueKey(topic, queue_id), offset, row[queue_id], end)
                    self._changes += 1
        if self._changes:
            self._wake.set()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the log is closed", path=self._components.paths.root)

    @staticmethod
    def _check(group: str, offset: int) -> None:
        check_group_name(group)
        if type(offset) is not int or offset < 0:
            raise RefusedStoreError(
                f"invalid consumer offset {offset!r}: expected an integer of 0 or more"
            )


def log_beyond(group: str, queue: QueueKey, offset: int, position: int, end: int) -> None:
    """Log that a group had an offset beyond the end of a queue, and where it goes on."""
    why = "the end of the queue was lost" if position == end else "the topic was deleted"
    _LOG.warning(
        "group %r: offset %d in queue %d of topic %r is after the max offset %d; continuing at %d"
        " (%s)",
        group, offset, queue.queue_id, queue.topic, end, position, why,
    )  # fmt: skip


def _key(topic: str, group: str) -> str:
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
