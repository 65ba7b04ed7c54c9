"""CleaningRules: which topics to delete, and how fast; CleanedTopic: one topic that a rule selects.

Source: RocketMQ ``DefaultMessageStore.cleanUnusedTopic``, ``AbstractLiteLifecycleManager``,
``BrokerConfig.batchDeleteTopicMaxRate``.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import NamedTuple

from cqstore.broker.lite_topics import LiteRules
from cqstore.store.errors import StoreConfigError

TOPICS_PER_SECOND = 100.0
"""Default limit of deleted topics per second."""


class CleaningRule(StrEnum):
    """Rules by which topics are selected; of several, the first one counts."""

    UNUSED = "unused"
    """The topic has queues and is not in the broker's topic table. System topics and light queues
    never are, as in RocketMQ."""
    LITE = "lite"
    """A lite topic without a new message for longer than ``lite.topic.expiration`` of its parent,
    or without any message left."""
    IDLE = "idle"
    """A topic without a new message for some time, or without any message left. Never a retry,
    dead-letter or system topic, or a light queue."""


class KeptReason(StrEnum):
    """Reasons why a topic that a rule selects is not deleted."""

    BACKLOG = "backlog"
    """A group has messages of the topic to consume."""
    DEAD_LETTERS = "dead-letters"
    """The topic has messages that a group could not consume."""
    SYSTEM = "system-topic"
    UNKNOWN_TIME = "unknown-time"
    """The store time of a queue's newest message cannot be read."""
    INVALID_NAME = "invalid-name"
    """The backend does not accept the topic's name."""
    NEW_MESSAGES = "new-messages"
    """A message arrived after the topic was examined, or another caller deleted the topic."""
    CONSUMERS = "open-consumers"
    """A group of the embedded log has open consumers of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningRules:
    """Rules by which topics are deleted; at least one of ``unused``, ``idle_days`` and ``lite``."""

    unused: bool = False
    """Delete topics that are not in the topic table."""
    idle_days: float | None = None
    """Delete topics without a new message for this many days; ``None``: do not."""
    lite: bool = False
    """Delete lite topics that are past the expiration of their parent."""
    lagging: bool = False
    """Also delete topics with a backlog or dead letters, as RocketMQ does."""
    prefix: str = ""
    """Only topics whose names begin with it."""
    topics_per_second: float = TOPICS_PER_SECOND
    """Maximum number of topics deleted per second, on average."""
    min_lite_ttl_ms: int = LiteRules().min_ttl_ms
    """Minimum idle time of a deleted lite topic in ms (``minLiteTTl``)."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            StoreConfigError: a value is out of range, or there is no rule.
        """
        if not (self.unused or self.lite or self.idle_days is not None):
            raise StoreConfigError("no rule is given: set unused, idle_days or lite")
        if self.idle_days is not None and not (isfinite(self.idle_days) and self.idle_days >= 0):
            raise StoreConfigError(f"invalid idle_days {self.idle_days!r}: expected 0 or more")
        if not (isfinite(self.topics_per_second) and self.topics_per_second > 0):
            raise StoreConfigError(
                f"invalid topics_per_second {self.topics_per_second!r}: expected more than 0"
            )


class CleanedTopic(NamedTuple):
    """A topic that a rule selects."""

    topic: str
    rule: CleaningRule
    queues: int
    messages: int
    """Number of messages whose records are in the log. The records stay there until they expire."""
    queue_bytes: int
    """Size of its queues: allocated blocks of files, or uncompressed keys and values in RocksDB,
    whose compactions free the space later."""
    newest: int | None
    """Store time of the newest message in ms; ``None``: no message is left, or it is unknown."""
    kept: KeptReason | None = None
    """Why the topic is kept; ``None``: it was deleted, or would be deleted."""
    detail: str = ""
    """More about the reason, for people."""
