"""FollowedEnds: tracks the ends of queues in a store that another process writes.

A store opened read-only shows the ends at that moment, without the units that a RocksDB writer has
only in memory. The records of its log show the rest: the last record of a queue is its end.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.log_files import list_log_files
from cqstore.store.log.log_follower import LogFollower
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.light_home import is_light
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import DLQ_PREFIX, RETRY_PREFIX, is_queued
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.topic_follower import light_offsets

Ends = dict[int, tuple[int, int]]
"""Queue id → min and max offset."""


class FollowedEnds:
    """The ends of the queues of some topics and of all retry and dead-letter topics. One thread.

    The store is reopened if a new topic is requested, if log files have expired (then min offsets
    have increased), and if the log was truncated. Only the ends of these queues are in memory.
    """

    def __init__(self, open_store: Callable[[], MessageStore]) -> None:
        """``open_store`` opens the store read-only in its current state."""
        self._open_store = open_store
        self._ends: dict[str, Ends] = {}
        self._has_light = False
        self._log: _UndispatchedLog | None = None

    def refresh(self, topics: Collection[str]) -> None:
        """Read new records; ``topics`` are the topics whose ends are requested next.

        Raises:
            StoreError: the store cannot be opened, or its log cannot be read.
        """
        if self._log is None or self._log.has_expired() or not self._ends.keys() >= {*topics}:
            self._begin(topics)
        try:
            self._read_on()
        except RefusedStoreError:  # the log was truncated before the position read so far
            self._begin(topics)
            self._read_on()

    def topics(self) -> Iterator[str]:
        """Yield the topics whose queues are known, in any order."""
        yield from self._ends

    def spans(self, topic: str) -> Sequence[QueueSpan]:
        """Return the queues of ``topic`` with their ends, by queue id."""
        ends = sorted(self._ends.get(topic, {}).items())
        return [QueueSpan(QueueKey(topic, queue_id), *each) for queue_id, each in ends]

    def _begin(self, topics: Collection[str]) -> None:
        """Read the ends of the queues, and find the start of the undispatched part of the log."""
        with self._open_store() as store:
            wanted = {*topics, *store.topics(RETRY_PREFIX), *store.topics(DLQ_PREFIX)}
            self._ends = {
                topic: {key.queue_id: (low, high) for key, low, high in store.queue_spans(topic)}
                for topic in wanted
            }
            self._has_light = any(map(is_light, wanted))
            self._log = _UndispatchedLog(store)

    def _read_on(self) -> None:
        """Process the new records."""
        log = self._log
        if log is None:
            return
        for message in log.follower.poll():
            if message.is_passed_over or not is_queued(message.sys_flag):
                continue
            self._note(log, message, message.topic, message.queue_id, message.queue_offset)
            if self._has_light:
                for name, offset in light_offsets(message).items():
                    self._note(log, message, name, 0, offset)
        log.follower.passed_over.clear()  # ``check`` reports damage

    def _note(
        self,
        log: "_UndispatchedLog",
        message: StoredMessage,
        topic: str,
        queue_id: int,
        offset: int,
    ) -> None:
        """Process a record of a queue: the queue ends after it."""
        ends = self._ends.get(topic)
        if ends is None:
            if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                return
            ends = self._ends[topic] = {}
        if not log.deleted.has_record(topic, message.phy_offset):
            low, _ = ends.get(queue_id, (offset, offset))
            ends[queue_id] = min(low, offset), offset + 1  # also for a recreated queue


class _UndispatchedLog:
    """Reads the log from the first record that the queues of an opened store may lack."""

    def __init__(self, store: MessageStore) -> None:
        low, high = store.min_phy_offset(), store.max_phy_offset()
        start = min(max(components_of(store).queues.dispatch_from_phy_offset(), low, 0), high)
        self.deleted = components_of(store).deleted
        self._folders = components_of(store).layout.log_folders
        self._first = self._first_file()
        self.follower = LogFollower(self._folders, start)

    def has_expired(self) -> bool:
        """Return whether the first file of the log has changed."""
        return self._first is not None and self._first_file() != self._first

    def _first_file(self) -> int | None:
        return next(iter(list_log_files(self._folders)), None)
