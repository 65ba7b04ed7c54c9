"""Data classes for pending messages: sums by source, and single messages."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Step = Callable[[int], object]
"""Called with the number of units or records read since the last call."""


class PendingSource(StrEnum):
    """Places in a broker where messages wait for delivery or for a transaction decision."""

    DELAY = "delay"
    """A level of ``SCHEDULE_TOPIC_XXXX``."""
    HALF = "half"
    """Half messages of transactions."""
    TIMER = "timer"
    """The timer wheel: messages with their own delivery time."""
    TIMER_QUEUE = "timer-queue"
    """Timer messages that the broker has not yet read from their queue."""
    ROCKSDB_TIMER = "rocksdb-timer"
    """Timer messages in ``rocksdbstore``."""
    ROCKSDB_HALF = "rocksdb-half"
    """Half messages in ``rocksdbstore``."""


@dataclass(slots=True)
class PendingPart:
    """Pending messages of one delay level, half-message queue, or timer."""

    source: PendingSource
    part: int
    """The level, or the queue id of half messages."""
    position: int
    """The broker's next queue offset; the min offset if none is recorded."""
    max_offset: int
    pending: int = 0
    decided: int = 0
    """Number of half messages that have an op message but are not yet below the broker's
    offset."""
    overdue: int = 0
    """Number of messages due before now. Half messages have no due time."""
    first_due: int | None = None
    last_due: int | None = None
    oldest: int | None = None
    """Store time of the oldest pending message, in ms."""


class PendingMessage(NamedTuple):
    """One message that waits for delivery, or a half message, pending or decided."""

    source: PendingSource
    part: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    due: int | None
    topic: str | None
    """The topic to which the message will be delivered."""
    unique_key: str | None
    check_times: int | None
    """How often the broker has checked the state of a half message with the producer."""
    op_offset: int | None
    """Queue offset of the op message that decided it."""
