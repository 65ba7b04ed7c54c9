"""ConsumerOffsets: the consumer offsets of each group and queue, stored as a broker stores them.

A commit is in memory at once, and in the broker's table within the interval, at a flush and at a
close. The log is made durable before the table: a group is never ahead of the log that remains
after a power cut. So a killed process can lose the commits of one interval, whose messages are
delivered again, and no message is skipped. The table gets only the rows that changed.

Source: RocketMQ ``ConsumerOffsetManager``, ``BrokerConfig.flushConsumerOffsetInterval``.
"""

import os
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from cqstore.broker.groups.group_offsets import OffsetChange, Target, changed, copy, forget, reset
from cqstore.broker.metadata.model import BrokerMetadata, Form, Offsets, readings
from cqstore.broker.metadata.owned_table import OwnedTable
from cqstore.broker.metadata.sorted_keys import SortedKeys
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
"""Seconds between two writes of changed offsets, the same as a broker's."""
_ONLY_BY_CALL = "consumer offsets are now written only by flush and close"


class ConsumerOffsets:
    """The offsets of all groups of one open store. Any thread; the lock is only held briefly."""

    def __init__(
        self,
        store: MessageStore,
        table: OwnedTable,
        interval: float = INTERVAL_SECONDS,
        on_deleted: Callable[[Collection[str]], object] = noop,
    ) -> None:
        """Take over the offsets in ``table``. Offsets beyond the end of their queue are reset.

        ``on_deleted`` is called with topics after their queues were deleted.
        """
        self._components, self._owner = components_of(store), weakref.ref(store)
        self._interval = interval
        self._on_deleted = on_deleted
        self._table = table
        self._offsets: Offsets = table.take()
        self._keys = SortedKeys(self._offsets)
        # guards _offsets, _keys, _changes and _changed
        self._lock = CheckedLock("a commit of a consumer offset")
        self._writing = CheckedLock("a write of consumer offsets")  # one at a time; _unwritten
        self._changes = self._written = 0
        self._changed, self._unwritten = set[str](), set[str]()  # keys: since a write, in a write
        self._incarnations: Counter[str] = Counter()  # number of deletions per topic
        self._deleting: frozenset[str] = frozenset()
        self._wake, self._stop = Wakeup(), Latch()
        self._closed = False
        self._pid = os.getpid()
        self.failures = 0
        """Number of failed writes by the thread; each is retried."""
        self.worker = Worker("cqstore-offsets", self._run, self._give_up, _ONLY_BY_CALL)
        self._set_back()

    def start(self) -> None:
        """Start the thread that writes. It ends when the store is closed or garbage-collected."""
        self._components.services.append(self)
        self.worker.start()

    # ---- queries

    @property
    def form(self) -> Form:
        """Return the form in which the offsets are written."""
        return self._table.form

    @property
    def is_closed(self) -> bool:
        """Return whether commits are refused."""
        return self._closed

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset at which ``group`` continues; ``None``: it has none for the queue."""
        with self._lock.entry():
            return self._offsets.get(_key(topic, group), {}).get(queue_id)

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id → offset for the queues of ``topic`` in which ``group`` has an offset."""
        with self._lock.entry():
            return dict(self._offsets.get(_key(topic, group), {}))

    def rows(self) -> Offsets:
        """Return a copy of all offsets."""
        with self._lock.entry():
            return {key: dict(row) for key, row in self._offsets.items()}

    def page(self, at: int, count: int) -> list[tuple[str, str, dict[int, int]]]:
        """Return group, topic and offsets of ``count`` rows from row ``at`` on, for metrics.

        A row whose key can be split into topic and group in several ways or not at all, or whose
        topic name is invalid, is returned without offsets, so that rows keep their numbers. After
        the last row, the list is shorter or empty.
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

    # ---- commits

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, incarnation: int | None = None
    ) -> int:
        """Advance the offset of ``group`` to ``offset``, never back; return the resulting offset.

        Changes memory only; ``flush`` makes it durable. Whether the queue exists is not checked.
        With ``incarnation``, nothing is committed if the topic now has another incarnation.

        Raises:
            IllegalMessageError: the group name is invalid.
            RefusedStoreError: ``offset`` is not an integer of 0 or more.
            StoreClosedError: the log is closed.
        """
        self._check(group, offset)
        with self._lock.entry():
            self._check_open()
            if self._is_gone(topic, incarnation):
                return self._offsets.get(_key(topic, group), {}).get(queue_id, 0)
            row = self._row(key := _key(topic, group))
            before = row.get(queue_id)
            if before is not None and offset <= before:
                return before
            self._mark([key])
            row[queue_id] = offset
        self._wake.set()
        return offset

    def begin(
        self, group: str, topic: str, queue_ids: Iterable[int], first: Callable[[int], int]
    ) -> None:
        """Commit ``first(queue_id)`` for each queue in which ``group`` has no offset.

        Raises:
            StoreError: as for ``commit``.
        """
        incarnation = self.incarnation(topic)  # before first(): the topic may be deleted then
        there = self.of_topic(group, topic)
        for queue_id in queue_ids:
            if queue_id not in there:
                self.commit(group, topic, queue_id, first(queue_id), incarnation)

    def assign(
        self, group: str, topic: str, queue_id: int, offset: int, incarnation: int | None = None
    ) -> None:
        """Set the offset of ``group`` to ``offset``, also back. Changes memory only.

        Raises:
            StoreError: as for ``commit``.
        """
        self._check(group, offset)
        with self._lock.entry():
            self._check_open()
            if self._is_gone(topic, incarnation):
                return
            self._mark([key := _key(topic, group)])
            self._row(key)[queue_id] = offset
        self._wake.set()

    def _row(self, key: str) -> dict[int, int]:
        """Return the offsets of a key, which is added if it is new; under the lock."""
        if key not in self._offsets:
            self._keys.add(key)
        return self._offsets.setdefault(key, {})

    def _mark(self, keys: Iterable[str]) -> None:
        """Note, before a change, that the next write has these rows; under the lock.

        Before it, because an interrupted change then causes at most one extra write.
        """
        self._changes += 1
        self._changed.update(keys)

    def _is_gone(self, topic: str, incarnation: int | None) -> bool:
        """Return whether a commit is for messages of a deleted topic; under the lock."""
        if topic in self._deleting:
            return True
        return incarnation is not None and incarnation != self._incarnations[topic]

    # ---- changes on request, durable when they return

    def reset(
        self, group: str, topic: str, target: Target, queue_id: int | None = None
    ) -> list[OffsetChange]:
        """Set the offsets of ``group`` to ``target``, in all queues of ``topic`` or in one.

        Raises:
            NoSuchQueueError: there is no such queue.
            RefusedStoreError: an offset is outside of its queue, or the topic was deleted in the
                meantime; nothing was changed.
            StoreError: the file cannot be written; the change is in memory only.
        """
        check_group_name(group)
        return self._change(
            group, lambda found: reset(self._store, found, group, topic, queue_id, target)
        )

    def copy(self, source: str, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Set the offsets of ``group`` to those of ``source``, by default except retry topics.

        Raises:
            RefusedStoreError: ``source`` has no offsets there, or a topic was deleted in the
                meantime; nothing was changed.
            StoreError: as for ``reset``.
        """
        check_group_name(group)
        return self._change(
            group, lambda found: self._some(source, copy(found, source, group, topics))
        )

    def forget(self, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Remove the offsets of ``group``, in ``topics`` or all: it then starts like a new group.

        Raises:
            RefusedStoreError: the group has no offsets; nothing was changed.
            StoreError: as for ``reset``.
        """
        return self._change(group, lambda found: self._some(group, forget(found, group, topics)))

    def forget_topic(self, topic: str) -> None:
        """Remove the offsets of all groups in ``topic``, which is about to get its first message.

        Durable when it returns. A key that can be split in several ways is kept if in doubt.

        Raises:
            StoreError: the file cannot be written; the change is in memory only.
        """
        if self._forget([topic]):
            self.flush()

    @contextmanager
    def deleting(self, topics: Collection[str]) -> Iterator[None]:
        """Remove the offsets of all groups in ``topics``, durably; refuse commits until the exit.

        At entry and exit, each topic gets a new incarnation, see ``incarnation``.

        Raises:
            StoreError: the file cannot be written; the change is in memory only.
        """
        with self._lock.entry():
            self._deleting = frozenset(topics)
            self._incarnations.update(topics)
        try:
            self._forget(topics)
            self._write(self._components.commit.flush)  # not flush(): within a deletion
            with self._table.released():  # other forms are changed, and the queues deleted
                yield
        finally:
            with self._lock.entry():
                self._incarnations.update(topics)
                self._deleting = frozenset()
            self._on_deleted(topics)

    def incarnation(self, topic: str) -> int:
        """Return a number that changes with each deletion of ``topic``."""
        return self._incarnations[topic]

    def position_beyond(self, topic: str, queue_id: int) -> int:
        """Return where a group continues whose offset is beyond the end of a queue.

        A deleted topic has only new messages: the group gets the first one. Any other queue has
        lost its end (a power cut, or a truncated log): the group continues at the end, as a broker
        does, because it has consumed the remaining messages.

        Source: RocketMQ ``DefaultMessageStore.getMessage`` (``OFFSET_OVERFLOW_BADLY``).
        """
        if self._incarnations[topic] or self._components.deleted.has_record(topic, 0):
            return self._store.min_offset(topic, queue_id)
        return self._store.max_offset(topic, queue_id)

    def _forget(self, topics: Collection[str]) -> bool:
        """Remove all offsets in ``topics``, in memory only; return whether there were any."""
        keys = TopicKeys(self._components.paths, topics)
        with self._lock.entry():
            gone = {key for key in self._keys.of_topics(topics) if key in keys}
            is_other = self._table.forget(keys) or bool(gone)
            if is_other:
                self._mark(gone)
                for key in gone:
                    self._offsets.pop(key, None)
                self._keys.remove(gone)
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
        """Make the changes that ``plan`` returns for the current offsets, durably.

        Raises:
            RefusedStoreError: a topic was deleted in the meantime; nothing was changed.
            StoreError: as for ``flush``, or raised by ``plan``.
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
            keys = {_key(each.topic, group) for each in changes}
            rows = {key: self._offsets[key] for key in keys if key in self._offsets}
            self._mark(keys)
            for key in keys:
                self._row(key)
            self._offsets |= {key: {} for key in keys} | changed(rows, group, changes)
        self.flush()
        return changes

    # ---- writes

    def flush(self) -> None:
        """Make earlier commits durable, and the messages up to them.

        Raises:
            StoreError: the file cannot be written; the commits are in memory only.
        """
        self._write(self._store.flush_log)

    def _write(self, flush_log: Callable[[], object]) -> None:
        """Write changed offsets, after the log is durable."""
        with self._writing.entry():
            if self._changes == self._written:
                return
            with self._lock.entry():
                changes = self._changes
                self._unwritten |= self._changed  # until they are written, also after an error
                self._changed = set()
                rows = {key: dict(self._offsets.get(key, {})) for key in self._unwritten}
            flush_log()  # first, so that no group is ahead of the log on disk
            self._table.write(rows)
            self._unwritten = set()
            self._written = changes

    def close(self) -> None:
        """Write changed offsets and end the thread; the store must be open. No-op in a child.

        Raises:
            StoreError: as for ``flush``; unwritten offsets are lost.
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
        """End the thread without a write: the store is being closed."""
        self._stop.set()
        self._wake.set()
        self.worker.end()

    def halt(self) -> None:
        """End the thread and refuse commits: the store was garbage-collected."""
        self.stop()
        self._closed = True

    @property
    def _store(self) -> MessageStore:
        """Return the store, to which the thread has only a weak reference.

        Raises:
            StoreClosedError: the store was garbage-collected.
        """
        if (store := self._owner()) is None:
            raise StoreClosedError("the log is closed", path=self._components.paths.root)
        return store

    def _run(self) -> None:
        """Write commits once per interval, until the end."""
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

    # ---- checks

    def _set_back(self) -> None:
        """Reset offsets that are beyond the end of their queue, see ``position_beyond``.

        Offsets of a missing queue are kept: another program may use them.
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
                    self._mark([key])
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
    """Log that a group's offset was beyond the end of a queue, and where the group continues."""
    why = "the end of the queue was lost" if position == end else "the topic was deleted"
    _LOG.warning(
        "group %r: offset %d in queue %d of topic %r is after the max offset %d; continuing at %d"
        " (%s)",
        group, offset, queue.queue_id, queue.topic, end, position, why,
    )  # fmt: skip


def _key(topic: str, group: str) -> str:
    return f"{topic}{TOPIC_GROUP_SEPARATOR}{group}"
