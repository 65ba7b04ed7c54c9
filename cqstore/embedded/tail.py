"""Tail: one consumer of a group, an iterator over its messages for a task or a thread.

Messages of one queue are delivered in its order. If several queues have messages, the one that was
stored first is delivered first.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from cqstore.embedded.consumer_offsets import ConsumerOffsets, log_beyond
from cqstore.embedded.group_members import GroupMembers
from cqstore.embedded.log_message import TailMessage, log_message
from cqstore.embedded.one_reader import SKIPPED_MESSAGE, OneReader, filter_of
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.topic_reader import TopicMessage
from cqstore.store.service.results import GetMessageResult

if TYPE_CHECKING:
    from cqstore.store.service.reading.arrival_waits import ThreadWait
    from cqstore.store.service.reading.loop_waits import LoopWait

_LOG = StoreLogger(__name__)
_BATCH = 32
"""Messages per pull; after that many, other tasks run and all queues are checked."""
_BATCH_BYTES = 1 << 20
_NEVER = (1 << 62) - 1


class _Cursor:
    """Position of a tail in one queue, and messages that were read ahead."""

    __slots__ = ("at", "buffer", "commit", "incarnation", "is_at_end")

    def __init__(self, at: int, incarnation: int, commit: Callable[[str, str, int, int], int]):
        self.at = at
        self.incarnation = incarnation
        """Incarnation of the topic, see ``ConsumerOffsets.incarnation``."""
        self.commit = commit
        self.buffer: deque[tuple[tuple[int, int], TailMessage]] = deque()
        self.is_at_end = False


class Tail(OneReader[TailMessage]):
    """One consumer of a group: reads a topic and waits for messages; see ``EmbeddedLog.tail``.

    Used by one task or thread at a time. Delivers at least once: messages that were not committed
    are delivered again, to another consumer of the group or after a restart. With ``auto_commit``,
    a message is committed when the next one is requested, and the last one at the end of a
    ``with`` or ``async with`` block that ends without an exception.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        members: Sequence[GroupMembers],
        topic: str,
        group: str,
        *,
        tags: str,
        auto_commit: bool,
    ) -> None:
        """Join the group; queues without an entry in ``offsets`` are read from their start.

        ``members``: those of ``topic``, and of the group's retry topic, which is not filtered.
        """
        self._store = store
        self._offsets = offsets
        self._members = members
        self.topic = topic
        self.group = group
        self._tags = filter_of(tags)
        self._auto_commit = auto_commit
        self._cursors: dict[QueueKey, _Cursor] = {}
        self._last: TailMessage | None = None
        self._wait: LoopWait | ThreadWait | None = None
        self._versions = [0] * len(members)
        self._given = 0
        self._closed = False
        for each in members:
            each.join(self, tags if each.topic == topic else "*")

    @property
    def is_closed(self) -> bool:
        """Return whether the tail was closed."""
        return self._closed

    @property
    def _reader(self) -> str:
        return f", group {self.group!r}, queues {self.queue_ids}"

    @property
    def queue_ids(self) -> list[int]:
        """Return the ids of the queues that this consumer reads at present."""
        return sorted(key.queue_id for key in self._cursors if key.topic == self.topic)

    def wake(self) -> None:
        """Make the waiting task or thread check its share of the queues. Any thread."""
        if (wait := self._wait) is not None:
            wait.wake()

    def close(self) -> None:
        """Stop reading, and release the queues to other consumers. Any thread.

        In a task or thread that waits for a message, the iteration ends.
        """
        if not self._closed:
            self._closed = True
            for each in self._members:
                each.change()
            self.wake()

    def _end(self, *, is_clean: bool) -> None:
        if is_clean and not self._closed:
            self._commit_last()
        self.close()

    # ---- the next message

    async def _next(self) -> TailMessage:
        self._commit_last()
        while not self._closed:
            if self._given >= _BATCH:
                self._reset_ends()
                await asyncio.sleep(0)
            if not (message := self._take()):
                await self._arrival()
                message = self._take()
            if message is not None:
                return self._gives(message)
        raise StopAsyncIteration

    def _next_in_thread(self, deadline: float) -> TailMessage | None:
        self._commit_last()
        while not self._closed:
            if self._given >= _BATCH:
                self._reset_ends()
            if not (message := self._take()):
                self._arrival_in_thread(deadline)
                message = self._take()
            if message is not None:
                return self._gives(message)
            if monotonic() >= deadline:
                break
        return None

    def _read_again(self) -> None:
        """Restart at the group's offsets; messages that were not committed are delivered again."""
        self._last = None
        self._cursors.clear()
        self._versions = [0] * len(self._members)

    def _gives(self, message: TailMessage) -> TailMessage:
        self._given += 1
        self._last = message
        return message

    async def _arrival(self) -> None:
        """Wait until there may be a message, or until the queues are distributed again."""
        with self._store.loop_wait(awaited := self._awaited()) as wait:
            self._wait = wait
            try:
                if self._needs_no_wait(awaited):
                    return
                if self._is_at_end:
                    await wait.future
                else:
                    await asyncio.sleep(0)  # the filter matched nothing: read on
            finally:
                self._wait = None
        if wait.error is not None:
            raise wait.error
        self._reset_ends()

    def _arrival_in_thread(self, deadline: float) -> None:
        """Wait as ``_arrival`` does, at most until ``deadline``."""
        with self._store.thread_wait(awaited := self._awaited()) as wait:
            self._wait = wait
            try:
                if self._needs_no_wait(awaited):
                    return
                if self._is_at_end:
                    wait.wait(max(deadline - monotonic(), 0))
            finally:
                self._wait = None
        self._reset_ends()

    def _awaited(self) -> dict[QueueKey, int]:
        """Return the queue offsets to wait for.

        Without a queue, other consumers or the closing of the store end the wait.
        """
        found = {key: cursor.at for key, cursor in self._cursors.items()}
        return found or {QueueKey(self.topic, 0): _NEVER}

    def _needs_no_wait(self, awaited: dict[QueueKey, int]) -> bool:
        """Read again after the wait has been registered; return whether there is work to do."""
        self._reset_ends()
        return self._has_next() or self._is_stale or self._has_gone_back(awaited)

    @property
    def _is_at_end(self) -> bool:
        return all(cursor.is_at_end for cursor in self._cursors.values())

    def _take(self) -> TailMessage | None:
        """Take the message with the lowest store time of those read ahead; ``None``: none."""
        if self._is_stale and not self._closed:
            self._take_share()
        if self._closed:
            return None
        if not self._has_next():
            return None
        first = min(
            (cursor for cursor in self._cursors.values() if cursor.buffer),
            key=lambda cursor: cursor.buffer[0][0],
        )
        return first.buffer.popleft()[1]

    @property
    def _is_stale(self) -> bool:
        return self._closed or self._versions != [each.version for each in self._members]

    def _has_next(self) -> bool:
        """Read queues without buffered messages; return whether there is a message."""
        for key, cursor in self._cursors.items():
            if not cursor.buffer and not cursor.is_at_end:
                self._read(key, cursor)
        return any(cursor.buffer for cursor in self._cursors.values())

    def _has_gone_back(self, awaited: dict[QueueKey, int]) -> bool:
        cursors = self._cursors
        return any(cursors[key].at < at for key, at in awaited.items() if key in cursors)

    def _reset_ends(self) -> None:
        self._given = 0
        for cursor in self._cursors.values():
            cursor.is_at_end = False

    def _take_share(self) -> None:
        """Update the own share of the queues; a new queue is read from the group's offset."""
        for number, members in enumerate(self._members):
            self._versions[number], mine = members.share(self)
            keys = {QueueKey(members.topic, queue_id) for queue_id in mine}
            theirs = [each for each in self._cursors if each.topic == members.topic]
            for key in theirs:
                if key not in keys or self._is_gone(key, self._cursors[key]):
                    del self._cursors[key]
            for key in keys - self._cursors.keys():
                incarnation = self._offsets.incarnation(key.topic)  # first, as it may change
                commit = partial(self._offsets.commit, incarnation=incarnation)
                at = self._offsets.committed(self.group, *key)
                at = self._store.min_offset(*key) if at is None else at
                self._cursors[key] = _Cursor(at, incarnation, commit)

    def _commit_last(self) -> None:
        """Commit the message that was delivered last, when the consumer requests the next."""
        last = self._last
        if not self._auto_commit or last is None:
            return
        last.commit()
        cursor = self._cursors.get(QueueKey(last.topic, last.queue_id))
        if cursor is not None and not cursor.buffer:  # skip what the filter did not match
            cursor.commit(self.group, last.topic, last.queue_id, cursor.at)
        self._last = None

    # ---- reading

    def _read(self, key: QueueKey, cursor: _Cursor) -> None:
        """Pull once; afterwards, the cursor has advanced or is at the end."""
        at = cursor.at
        tags = self._tags if key.topic == self.topic else None  # retries matched before
        found = self._store.get_message(*key, at, _BATCH, tags, _BATCH_BYTES)
        messages = found.messages()
        if self._is_gone(key, cursor):  # deleted in between: the share is taken again
            cursor.is_at_end = True
            return
        _report(key, found)
        for queue_offset, message in zip(found.queue_offsets, messages, strict=True):
            read = TopicMessage(key.queue_id, queue_offset, message)
            try:
                copied = log_message(key.topic, read)
            except CorruptionError as exc:
                _LOG.error(SKIPPED_MESSAGE, queue_offset, key.queue_id, key.topic, exc)
                continue
            entry = TailMessage(
                copied.topic, copied.queue_id, queue_offset, copied.store_timestamp, copied.body,
                copied.properties, copied.reconsume_times, self.group, cursor.commit,
            )  # fmt: skip
            cursor.buffer.append((read.order, entry))
        cursor.at = found.next_begin_offset
        if cursor.at < at:
            cursor.at = self._go_back(key, cursor, at)
        if cursor.at <= at:
            cursor.is_at_end = True
        elif self._auto_commit and not messages:
            # Everything before is committed, so messages that the filter skipped are not reread.
            cursor.commit(self.group, *key, cursor.at)

    def _go_back(self, key: QueueKey, cursor: _Cursor, at: int) -> int:
        """Return where the group continues in a queue that ends before ``at``."""
        position = self._offsets.position_beyond(*key)
        log_beyond(self.group, key, at, position, cursor.at)
        self._offsets.assign(self.group, *key, position, cursor.incarnation)
        return position

    def _is_gone(self, key: QueueKey, cursor: _Cursor) -> bool:
        """Return whether the topic was deleted since the cursor was made."""
        return cursor.incarnation != self._offsets.incarnation(key.topic)


def _report(key: QueueKey, found: GetMessageResult) -> None:
    for damaged in found.damaged:
        _LOG.error(SKIPPED_MESSAGE, damaged.queue_offset, key.queue_id, key.topic, damaged.reason)
    if found.hole is not None:
        _LOG.error("skipped missing messages %d to %d of queue %d of topic %r",
                   found.hole.start, found.hole.stop - 1, key.queue_id, key.topic)  # fmt: skip
