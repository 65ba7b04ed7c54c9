"""Lag of consumer groups: their offsets compared with the ends of the queues.

Source: RocketMQ ``AdminBrokerProcessor.getConsumeStats``, ``ConsumeStats``.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import groupby, islice
from typing import NamedTuple

from cqstore.broker.metadata.model import BrokerMetadata, readings
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.broker.topic_kind import TopicKind, group_of, topic_kind
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.facts import NO_RECORD_TIME, QueueSpan
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_BLOCK = 4096
"""Number of queues whose store times are read in one batch."""
Row = Mapping[int, int]
"""Queue id → next offset."""


class QueueLag(NamedTuple):
    """The lag of one group in one queue."""

    group: str
    kind: TopicKind
    queue: QueueKey
    min_offset: int
    max_offset: int
    offset: int | None
    """The next offset that the group consumes; ``None``: it has not committed an offset."""
    lag: int
    """RocketMQ's ``diff``, never below 0. A missing offset counts as 0."""
    expired: int
    """The part of the lag that is no longer in the log."""
    next_timestamp: int | None = None
    """Store time of the next message in ms; ``None`` if there is no message or no record."""

    @property
    def next_offset(self) -> int:
        """Return the offset of the next message to consume that is still in the log."""
        return max(self.offset or 0, self.min_offset)

    @property
    def is_consumed(self) -> bool:
        """Return whether the group consumes the queue, unlike a queue of its dead letters."""
        return self.offset is not None or self.kind is not TopicKind.DLQ

    @property
    def messages(self) -> int:
        """Return the number of messages of the queue whose records are in the log."""
        return self.max_offset - self.min_offset

    @property
    def beyond(self) -> int:
        """Return by how much the offset exceeds the max offset; a broker resets such an offset."""
        return max((self.offset or 0) - self.max_offset, 0)


@dataclass(slots=True)
class LagTotals:
    """Sums of ``QueueLag`` over several queues."""

    queues: int = 0
    messages: int = 0
    offset: int = 0
    """Sum of the offsets; a queue without an offset counts as 0."""
    end: int = 0
    """Sum of the max offsets."""
    lag: int = 0
    expired: int = 0
    beyond: int = 0
    uncommitted: int = 0
    """Number of queues without an offset."""
    retry_lag: int = 0
    dead_letters: int = 0
    topics: set[str] = field(default_factory=set)
    oldest: int | None = None
    """Oldest store time of a next message over all queues, in ms."""

    def add(self, found: QueueLag) -> None:
        """Add all figures of one queue."""
        self.queues += 1
        self.messages += found.messages
        self.offset += max(found.offset or 0, 0)
        self.end += found.max_offset
        self.lag += found.lag
        self.expired += found.expired
        self.beyond += found.beyond
        self.uncommitted += found.offset is None and found.is_consumed
        timestamp = found.next_timestamp
        if timestamp is not None and (self.oldest is None or timestamp < self.oldest):
            self.oldest = timestamp

    def add_by_kind(self, found: QueueLag) -> None:
        """Add one queue of a group; retry and dead-letter queues are counted separately."""
        if found.kind is TopicKind.DLQ and not found.is_consumed:
            self.dead_letters += found.messages
        elif found.kind is TopicKind.RETRY:
            self.retry_lag += found.lag
        else:
            self.add(found)
            self.topics.add(found.queue.topic)


class GroupRows:
    """The offsets of ``metadata`` by topic, and the known topics and groups."""

    def __init__(self, metadata: BrokerMetadata) -> None:
        self.topics = metadata.topics
        self.rows: dict[str, dict[str, Row]] = defaultdict(dict)
        """Topic → group → offsets by queue id."""
        self.groups = set(metadata.groups)
        """Groups that have a configuration or offsets."""
        self.unsure: list[str] = []
        """Ambiguous keys ``topic@group``; their first reading is used."""
        ways = {key: list(readings(key)) for key in metadata.offsets}
        self.groups.update(found[0][1] for found in ways.values() if len(found) == 1)
        for key, row in metadata.offsets.items():
            fitting = fitting_readings(key, self.topics, self.groups)
            if len(fitting) != 1:
                self.unsure.append(key)
            topic, group = (fitting if len(fitting) == 1 else [*ways[key], (key, "")])[0]
            self.rows[topic][group] = row
            self.groups.add(group)

    def of_topic(self, topic: str, spans: Sequence[QueueSpan]) -> Iterator[QueueLag]:
        """Yield the lag of each group in each queue of ``topic``; ``spans`` are these queues.

        Retry and dead-letter topics include their group even if it has not committed an offset.
        """
        rows: Mapping[str, Row] = self.rows.get(topic, {})
        owner = group_of(topic, self.groups)
        if spans and owner is not None and owner not in rows:
            rows = {**rows, owner: {}}
        if rows:
            yield from _of_topic(topic, spans, rows)


class GroupLags(GroupRows):
    """The lags of all groups, read in one pass over the queues of a store."""

    def __init__(self, store: MessageStore, metadata: BrokerMetadata) -> None:
        """Arrange the offsets of ``metadata`` by topic; no queue is read yet."""
        super().__init__(metadata)
        self._store = store

    def queues(self, progress: Progress = noop) -> Iterator[QueueLag]:
        """Yield each queue in which a group has an offset, and its retry and dead-letter queues.

        Queues of one topic are adjacent. Queues of such a topic without an offset are included:
        RocketMQ counts them from 0. An offset whose queue does not exist is included with ends
        (0, 0). ``progress`` is called with the number of queues processed so far.
        """
        left = self._found(progress)
        while block := list(islice(left, _BLOCK)):
            wanted = ((each.queue, each.next_offset) for each in block if each.expired < each.lag)
            times = components_of(self._store).queues.unit_timestamps(wanted)
            for each in block:
                timestamp = next(times) if each.expired < each.lag else NO_RECORD_TIME
                yield each if timestamp == NO_RECORD_TIME else QueueLag(*each[:-1], timestamp)

    def _found(self, progress: Progress) -> Iterator[QueueLag]:
        """Yield the same as ``queues``, without store times."""
        left, passed = set(self.rows), 0
        for topic, of_topic in groupby(self._store.queue_spans(), _topic_of):
            spans = list(of_topic)
            progress(passed)
            passed += len(spans)
            left.discard(topic)
            yield from self.of_topic(topic, spans)
        for topic in sorted(left):
            yield from self.of_topic(topic, [])


def _topic_of(span: QueueSpan) -> str:
    return span.queue.topic


def _of_topic(
    topic: str, spans: Sequence[QueueSpan], rows: Mapping[str, Row]
) -> Iterator[QueueLag]:
    """Yield each group's lag in each queue of a topic, and offsets of missing queues."""
    kind = topic_kind(topic)
    there = {span.queue.queue_id for span in spans}
    for group, row in rows.items():
        for span in spans:
            yield _lag(group, kind, span, row.get(span.queue.queue_id))
        for queue_id in sorted(row.keys() - there):
            yield QueueLag(group, kind, QueueKey(topic, queue_id), 0, 0, row[queue_id], 0, 0)


def _lag(group: str, kind: TopicKind, span: QueueSpan, offset: int | None) -> QueueLag:
    """Return the lag of a group in one queue."""
    if offset is None and kind is TopicKind.DLQ:
        return QueueLag(group, kind, *span, None, 0, 0)
    lag = span.lag(offset or 0)
    gone = max(span.min_offset - max(offset or 0, 0), 0)
    return QueueLag(group, kind, *span, offset, lag, min(gone, lag))


def near_groups(group: str, groups: Collection[str]) -> str:
    """Return known groups with similar names as the end of an error message."""
    found = " or ".join(map(repr, get_close_matches(group, groups)))
    return f"; did you mean {found}?" if found else ""
