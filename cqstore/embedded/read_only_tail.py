"""ReadOnlyTail: the messages of a topic in a log that another process writes, as they arrive.

Dispatched messages are read from a snapshot of the store, later ones from the log itself, which is
polled (decision 63). There is no group, and nothing is written.
"""

import asyncio
import heapq
import weakref
from collections.abc import Collection, Iterator
from operator import attrgetter
from time import monotonic

from cqstore.embedded.log_message import LogMessage, log_message
from cqstore.embedded.one_reader import SKIPPED_MESSAGE, OneReader, filter_of
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreStateError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.reading.store_times import ALL, Time, TimeRange, time_range
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import TopicDamage, TopicMessage, read_topic
from cqstore.store.service.store_snapshots import StoreSnapshots

_LOG = StoreLogger(__name__)
_BATCH = 32
"""Number of messages after which other tasks of the event loop run."""
POLL_SECONDS = 0.2


def report_damage(damage: TopicDamage) -> None:
    """Log units that were skipped."""
    _LOG.error(
        "skipped %d messages of queue %d, starting at offset %d: %s",
        damage.units, damage.queue_id, damage.queue_offset, damage.reason,
    )  # fmt: skip


def stored_messages(
    store: MessageStore,
    follower: TopicFollower,
    topic: str,
    times: TimeRange = ALL,
    *,
    tags: TagFilter | None = None,
    queue_ids: Collection[int] | None = None,
    log_end: int | None = None,
) -> Iterator[TopicMessage]:
    """Yield messages in the queues, and later ones of ``follower`` before ``log_end``, by time.

    ``store`` must be the store of ``follower``; times are store times.
    """

    def is_wanted(found: TopicMessage) -> bool:
        if queue_ids is not None and found.queue_id not in queue_ids:
            return False
        in_time = times.holds(found.message.store_timestamp)
        return in_time and (tags is None or tags.matches(found.message))

    shown = read_topic(
        store, topic, *times, queue_ids=queue_ids, tags=tags, on_damage=report_damage
    )
    undispatched = filter(is_wanted, follower.poll(topic, log_end))
    return heapq.merge(shown, undispatched, key=attrgetter("order"))


def read_snapshot(
    snapshots: StoreSnapshots,
    topic: str,
    times: TimeRange,
    tags: TagFilter | None,
    queue_ids: Collection[int] | None,
) -> Iterator[LogMessage]:
    """Yield the messages that the log had when it was last opened, see ``EmbeddedLog.read``.

    Includes messages that were not in their queues yet.
    """
    with snapshots.reading() as store:
        follower = TopicFollower(components_of(store))
        found = stored_messages(
            store, follower, topic, times, tags=tags, queue_ids=queue_ids,
            log_end=follower.opened_at,
        )  # fmt: skip
        for each in found:
            yield log_message(topic, each)
        _report(follower)


class ReadOnlyTail(OneReader[LogMessage]):
    """Reads a topic while another process puts messages to it; see ``EmbeddedLog.tail``.

    Used by one task or thread at a time. Existing messages are delivered once, by store time, then
    new ones in the order of the log. Topics that were deleted when the log was last opened or
    refreshed have no messages. Close it with ``with`` or ``async with``, or drop all references.
    """

    def __init__(
        self,
        snapshots: StoreSnapshots,
        topic: str,
        begin: Time | None,
        *,
        is_new_alone: bool,
        tags: str,
        poll_seconds: float,
    ) -> None:
        """Read from the store time ``begin`` on; with ``is_new_alone`` only messages put later.

        Messages that are put later are delivered whatever their store time is.

        Raises:
            RefusedStoreError: ``poll_seconds`` is not more than 0.
            StoreError: the log is closed, or cannot be read.
        """
        self._tags = filter_of(tags)
        self.topic = topic
        self._times = time_range(begin)
        if not poll_seconds > 0:
            raise RefusedStoreError(f"invalid poll_seconds {poll_seconds!r}: expected more than 0")
        self._poll_seconds = poll_seconds
        self._snapshots = snapshots
        store = snapshots.acquire()
        self._release = weakref.finalize(self, snapshots.release, store)
        self._release.atexit = False
        self._follower = TopicFollower(components_of(store))
        self._is_new_alone = is_new_alone
        if is_new_alone:
            for _ in self._follower.poll(topic):
                pass
        self._found = self._first(store)
        self._given = 0
        self._closed = False
        self._is_cut_short = False
        self._ended = Latch()

    @property
    def is_closed(self) -> bool:
        """Return whether the tail was closed."""
        return self._closed

    def close(self) -> None:
        """Stop reading. Any thread; a waiting task or thread ends its iteration."""
        self._closed = True
        self._ended.set()
        self._release()

    async def _next(self) -> LogMessage:
        """Return the next message; wait until there is one.

        Raises:
            RefusedStoreError: the log was truncated before what was already read.
            StoreClosedError: the log was closed.
            StoreIOError: the log cannot be read.
        """
        if self._given % _BATCH == _BATCH - 1:
            await asyncio.sleep(0)
        while not self._closed:
            if (message := self._take()) is not None:
                return message
            await asyncio.sleep(self._poll_seconds)
            self._poll_log()
        raise StopAsyncIteration

    def _next_in_thread(self, deadline: float) -> LogMessage | None:
        while not self._closed:
            if (message := self._take()) is not None:
                return message
            left = deadline - monotonic()
            if left <= 0 or self._ended.wait(min(left, self._poll_seconds)):
                break
            self._poll_log()
        return None

    def _read_again(self) -> None:
        """Refuse to continue: without a group, there is no offset to continue from."""
        self._is_cut_short = True

    def _take(self) -> LogMessage | None:
        """Return the next of the messages that were found; ``None``: there is none.

        Raises:
            StoreStateError: an earlier call was interrupted, so a message may be missing.
        """
        if self._is_cut_short:
            raise StoreStateError("an earlier read of this tail was interrupted: open a new tail")
        for found in self._found:
            try:
                message = log_message(self.topic, found)
            except CorruptionError as exc:
                _LOG.error(SKIPPED_MESSAGE, found.queue_offset, found.queue_id, self.topic, exc)
                continue
            self._given += 1
            return message
        _report(self._follower)
        if self._follower.has_passed_opening:
            self._release()  # the store is not used any more
        return None

    def _poll_log(self) -> None:
        """Check the log for records that another process has put."""
        self._snapshots.check_open()
        self._found = _undispatched(self._follower, self.topic, self._tags)

    def _first(self, store: MessageStore) -> Iterator[TopicMessage]:
        if self._is_new_alone:
            return iter(())
        return stored_messages(store, self._follower, self.topic, self._times, tags=self._tags)


# Not a method: it would keep a reference to a tail that is no longer used.
def _undispatched(
    follower: TopicFollower, topic: str, tags: TagFilter | None
) -> Iterator[TopicMessage]:
    for found in follower.poll(topic):
        if tags is None or tags.matches(found.message):
            yield found


def _report(follower: TopicFollower) -> None:
    for fault in follower.passed_over():
        _LOG.error("skipped a record of the log: %s", fault)
