"""Dead letters: the original topic of a message in ``%DLQ%group``, and how to resend it.

When a group has failed to consume a message for the last time, the broker copies the message to the
dead-letter topic. Properties and body stay; topic and queue change; ``reconsume_times`` increases.

Source: RocketMQ ``AbstractSendMessageProcessor.consumerSendMsgBack``,
``SendMessageProcessor.handleRetryAndDLQ``, ``KeyBuilder.parseNormalTopic``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle

from cqstore.cli.message_files.message_fields import ReadMessage
from cqstore.store.log.tail_topics import OTHERS
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import DLQ_PREFIX, RETRY_PREFIX, Message, MessageProperty
from cqstore.store.service.message_store import MessageStore

RETRY_TOPIC, ORIGIN_MESSAGE_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
_SHARDING_KEY, _FIRST_POP_TIME = "__SHARDINGKEY", "1ST_POP_TIME"
_POP_SEPARATORS = "+_"
_OF_THE_FAILURE = {
    RETRY_TOPIC, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, _FIRST_POP_TIME, MessageProperty.DELAY,
}  # fmt: skip
"""Properties that a broker added to the message during its retries."""
_MAX_TARGETS = 4096
"""Maximum number of topics whose queues are cached."""
MAX_PARTS = 4096
"""Maximum number of parts of one group that are counted separately."""

Part = tuple[str | None, int | None]
"""Original topic and number of failures; ``None``: unknown, or all."""


class Again(StrEnum):
    """Target of a dead letter that is resent."""

    TOPIC = "topic"
    """The original topic: every group that consumes it gets the message."""
    GROUP = "group"
    """The group's retry topic: only this group gets the message."""


@dataclass(slots=True)
class LetterSums:
    """Number of dead letters, with the range of their failures and store times."""

    messages: int = 0
    least_times: int | None = None
    """Lowest number of failures (``reconsumeTimes``); RocketMQ's default is 17: 1 + 16 retries."""
    most_times: int | None = None
    """Highest number of failures."""
    first: int | None = None
    """Store time of the oldest dead letter, in ms."""
    last: int | None = None

    def add(self, other: "LetterSums") -> None:
        """Add the sums of other dead letters."""
        self.messages += other.messages
        self.least_times = _least(self.least_times, other.least_times)
        self.most_times = _most(self.most_times, other.most_times)
        self.first = _least(self.first, other.first)
        self.last = _most(self.last, other.last)


class GroupLetters:
    """The dead letters of one group, summed by original topic, and by failures if ``by_times``."""

    def __init__(self, group: str, *, by_times: bool = False) -> None:
        self.group, self._by_times = group, by_times
        self.parts: dict[Part, LetterSums] = {}
        """Part → sums: at most ``MAX_PARTS`` parts, and one for all others."""

    def add(self, read: ReadMessage) -> None:
        """Add one dead letter of the group."""
        times = read.message.reconsume_times
        part: Part = origin_topic(self.group, read.message.properties), None
        if self._by_times:
            part = part[0], times
        if part not in self.parts and len(self.parts) >= MAX_PARTS:
            part = OTHERS, None
        stored = read.stored.store_timestamp
        self.parts.setdefault(part, LetterSums()).add(LetterSums(1, times, times, stored, stored))

    @property
    def total(self) -> LetterSums:
        """Return the sum of all parts."""
        found = LetterSums()
        for part in self.parts.values():
            found.add(part)
        return found


def origin_topic(group: str, properties: Mapping[str, str]) -> str | None:
    """Return the original topic of a dead letter of ``group``; ``None`` if it is unknown.

    A message retried by POP names the retry topic of group and topic, in either version.
    """
    named = properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC)
    if not named:
        return None
    retries = RETRY_PREFIX + group
    rest = named.removeprefix(retries)
    if rest != named and rest[:1] in {*_POP_SEPARATORS} and len(rest) > 1:
        return rest[1:]
    return named


class PutAgain:
    """Converts dead letters to messages for resending. Reads queues, writes nothing."""

    def __init__(self, store: MessageStore, group: str, where: Again) -> None:
        self._store, self._group, self._where = store, group, where
        self._targets: dict[str, tuple[list[int], Iterator[int]]] = {}
        self.unplaced = 0
        """Number of messages that do not name their original topic."""

    def messages(self, reads: Iterator[ReadMessage]) -> Iterator[ReadMessage]:
        """Yield each message of ``reads`` with its new topic and queue; skip it if there is none.

        The message is as before its first failure: ``reconsume_times`` is 0, and the properties
        added during retries are removed. ``ORIGIN_MESSAGE_ID``, the ID of the first record, stays.
        """
        for read in reads:
            topic = self._topic(read.message)
            if topic is None:
                self.unplaced += 1
                continue
            self._change(read.message, topic)
            yield read

    def _topic(self, message: Message) -> str | None:
        """Return the topic to resend a dead letter to; ``None`` if its origin is unknown."""
        origin = origin_topic(self._group, message.properties)
        if self._where is Again.TOPIC:
            return origin
        retries = RETRY_PREFIX + self._group
        for separator in _POP_SEPARATORS:  # a POP group has one retry topic per topic
            if origin is not None and self._queues(f"{retries}{separator}{origin}")[0]:
                return f"{retries}{separator}{origin}"
        return retries

    def _change(self, message: Message, topic: str) -> None:
        """Convert a dead letter to the message to resend, without the properties of the failure."""
        given = message.properties
        kept = {name: text for name, text in given.items() if name not in _OF_THE_FAILURE}
        if kept.get(MessageProperty.WAIT) == "false":  # set by the broker: it did not wait for disk
            del kept[MessageProperty.WAIT]
        origin = origin_topic(self._group, given)
        if origin is not None and topic == RETRY_PREFIX + self._group:  # consumers read this
            kept[RETRY_TOPIC] = origin
        message.queue_id = self._queue_id(topic, kept.get(_SHARDING_KEY))
        message.topic, message.properties, message.reconsume_times = topic, kept, 0

    def _queue_id(self, topic: str, sharding_key: str | None) -> int:
        """Return the next queue of a topic, round-robin; the same queue for each sharding key."""
        ids, turns = self._queues(topic)
        if not ids:
            return 0
        if sharding_key is not None:
            return ids[abs(java_hash(sharding_key)) % len(ids)]
        return next(turns)

    def _queues(self, topic: str) -> tuple[list[int], Iterator[int]]:
        """Return the queue ids of a topic and a round-robin iterator over them; cached."""
        found = self._targets.get(topic)
        if found is None:
            if len(self._targets) >= _MAX_TARGETS:
                self._targets.clear()
            ids = sorted(key.queue_id for key in self._store.queue_keys(topic))
            found = self._targets[topic] = ids, cycle(ids)
        return found


def dlq_topic(group: str) -> str:
    """Return the dead-letter topic of a group; ``group`` may also be the topic's own name."""
    return DLQ_PREFIX + group.removeprefix(DLQ_PREFIX)


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
