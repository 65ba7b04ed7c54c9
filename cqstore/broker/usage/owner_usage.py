"""Totals of queues per owner: topic, group, parent topic, or day."""

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum

from cqstore.broker.lite_topics import parent_topic
from cqstore.broker.topic_kind import TopicKind, group_of, topic_kind
from cqstore.broker.usage.queue_usage import Usage, queue_usage, usage_by_day
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.service.message_store import MessageStore


class UsageBy(StrEnum):
    """Subject of a row of ``cqstore usage``: a kind of owner of queues."""

    TOPIC = "topic"
    GROUP = "group"
    PARENT = "parent"
    DAY = "day"


@dataclass(slots=True)
class OwnerUsage:
    """Totals of the queues of one owner: a topic, group, parent topic, or day."""

    queues: int = 0
    topics: int = 0
    total: Usage = field(default_factory=Usage)
    """Total without light queues, whose records belong to other topics."""
    light: Usage = field(default_factory=Usage)
    retry: Usage = field(default_factory=Usage)
    dead: Usage = field(default_factory=Usage)

    def add(self, kind: TopicKind, usage: Usage) -> None:
        """Add the usage of one queue, or of a part of it; ``kind`` is the kind of its topic."""
        if kind is TopicKind.LIGHT:
            self.light.add(usage)
            return
        self.total.add(usage)
        if kind is TopicKind.RETRY:
            self.retry.add(usage)
        elif kind is TopicKind.DLQ:
            self.dead.add(usage)


Owners = dict[str | None, OwnerUsage]
"""Name → usage; ``None``: queues without a group, or units with an unknown store time."""


def total_bytes(owners: Owners) -> int:
    """Return the total bytes of all owners, without light queues."""
    return sum(each.total.bytes for each in owners.values())


class OwnersPass:
    """One pass over the queues of a store that sums their usage by owner."""

    def __init__(
        self, store: MessageStore, by: UsageBy, prefix: str, known: Container[str] | None,
        groups: Container[str], tick: Progress, *, of_queues: bool,
    ) -> None:  # fmt: skip
        """Count the queues of topics that begin with ``prefix``.

        ``known``: topics to leave out; if given, light and system topics are left out too.
        ``groups``: configured groups, to resolve the names of POP topics. ``tick`` is called with
        the bytes counted so far, without light queues; with ``of_queues``, it is called with the
        number of queues processed so far, including those left out.
        """
        self._counted = 0
        self._passed: Progress = tick if of_queues else noop
        self._tick: Progress = noop if of_queues else tick
        self._store, self._by, self._prefix, self._known = store, by, prefix, known
        self._groups = groups
        self._found: defaultdict[str | None, OwnerUsage] = defaultdict(OwnerUsage)

    def owners(self) -> Owners:
        """Return owner → totals of its queues."""
        last = None
        self._tick(0)
        for number, span in enumerate(self._store.queue_spans()):
            self._passed(number)
            topic = span.queue.topic
            if not topic.startswith(self._prefix) or self._is_known(topic):
                continue
            if self._by is UsageBy.DAY:
                self._add_days(span)
                continue
            owner = self._found[self._owner(topic)]
            owner.queues += 1
            owner.topics += topic != last
            kind = topic_kind(topic)
            is_light = kind is TopicKind.LIGHT
            step = noop if is_light else lambda size: self._tick(self._counted + size)
            found = queue_usage(self._store, span, step)
            self._counted += 0 if is_light else found.bytes
            self._tick(self._counted)
            owner.add(kind, found)
            last = topic
        return self._found

    def _is_known(self, topic: str) -> bool:
        if self._known is None:
            return False
        return topic in self._known or topic_kind(topic) in {TopicKind.LIGHT, TopicKind.SYSTEM}

    def _owner(self, topic: str) -> str | None:
        if self._by is UsageBy.GROUP:
            return group_of(topic, self._groups)
        parent = parent_topic(topic) if self._by is UsageBy.PARENT else None
        return parent or topic

    def _add_days(self, span: QueueSpan) -> None:
        """Add the usage of a queue to the days on which its messages were stored."""
        days = set()
        kind = topic_kind(span.queue.topic)
        for number, found in usage_by_day(self._store, span):
            day = _day(number)
            self._found[day].add(kind, found)
            self._counted += 0 if kind is TopicKind.LIGHT else found.bytes
            self._tick(self._counted)
            days.add(day)
        for day in days:
            self._found[day].queues += 1


def _day(number: int | None) -> str | None:
    """Return a day since the epoch as an ISO 8601 date; ``None`` if it is unknown."""
    if number is None:
        return None
    try:
        return (date(1970, 1, 1) + timedelta(number)).isoformat()
    except OverflowError:  # a record can contain any time
        return f"day {number}"
