"""What waits to be delivered or decided: sums by source, and one message."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Step = Callable[[int], object]
"""Called with how many units or records were read since the last time."""


class PendingSource(StrEnum):
    """The places of a broker where messages wait to be delivered or decided."""

    DELAY = "delay"
    """A level of ``SCHEDULE_TOPIC_XXXX``."""
    HALF = "half"
    """Half messages of transactions."""
    TIMER = "timer"
    """The timer wheel: messages with a time of their own."""
    TIMER_QUEUE = "timer-queue"
    """Timer messages that the broker has not taken out of their queue yet."""
    ROCKSDB_TIMER = "rocksdb-timer"
    """Timer messages in ``rocksdbstore``."""
    ROCKSDB_HALF = "rocksdb-half"
    """Half messages in ``rocksdbstore``."""


@dataclass(slots=True)
class PendingPart:
    """What waits in one delay level, queue of half messages, or timer."""

    source: PendingSource
    part: int
    """The level, or the id of a queue of half messages."""
    position: int
    """The broker's next queue offset; the minimum where none is written down."""
    max_offset: int
    pending: int = 0
    decided: int = 0
    """Half messages with an op message that the broker has not stepped over yet."""
    overdue: int = 0
    """Due before now. Half messages have no such time."""
    first_due: int | None = None
    last_due: int | None = None
    oldest: int | None = None
    """Store time of the oldest that waits, ms."""


class PendingMessage(NamedTuple):
    """One message that waits to be delivered, or that is decided."""

    source: PendingSource
    part: int
    queue_offset: int
    phy_offset: int
    store_timestamp: int
    due: int | None
    topic: str | None
    """The one that it is for."""
    unique_key: str | None
    check_times: int | None
    """How often the broker has asked the producer for a half message's state."""
    op_offset: int | None
    """Queue offset of the op message that decided it."""
