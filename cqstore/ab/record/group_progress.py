"""GroupProgress: the pulls of consumer groups, derived from tables of consumer offsets.

A broker does not report pulls. It has each group's committed offsets, which clients send every 5 s
by default. The difference of two tables is what a group has consumed in between:

- A message that was put within that time, or shortly before, was pulled when it was put: the broker
  wakes up a waiting pull. Messages of one millisecond were pulled together.
- Older messages were pulled in batches of 32, evenly spread over that time.

Source: RocketMQ ``PullRequestHoldService``, ``ClientConfig.persistConsumerOffsetInterval``,
``DefaultMQPushConsumer.pullBatchSize``.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cqstore.broker.metadata.model import readings

BATCH = 32
"""Maximum number of messages per pull: the default of a push consumer."""
COMMIT_SECONDS = 5.0
"""Time in which a client commits what it has consumed."""
MAX_PER_SECOND = 200_000
"""Messages per second and queue above which an offset was reset, rather than consumed up to."""
MAX_REMEMBERED = 1 << 18
"""Number of latest puts whose time is remembered, some 250 bytes each."""
OffsetTable = Mapping[str, Mapping[str, int]]
"""``topic@group`` → queue id → offset."""


class DerivedPull(NamedTuple):
    """A pull that a group must have made."""

    topic: str
    queue_id: int
    offset: int
    messages: int
    at: float


class PutTimes:
    """Times of the latest puts, by queue and offset."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._times: OrderedDict[tuple[str, int, int], float] = OrderedDict()

    def remember(self, topic: str, queue_id: int, offset: int, at: float) -> None:
        """Remember a put; the oldest one is forgotten above the limit."""
        self._times[topic, queue_id, offset] = at
        if len(self._times) > self._limit:
            self._times.popitem(last=False)

    def at(self, topic: str, queue_id: int, offset: int) -> float:
        """Return the time of a put, -1 if it is not remembered."""
        return self._times.get((topic, queue_id, offset), -1.0)


class GroupProgress:
    """Derives pulls from each table of offsets and the one before it."""

    def __init__(self, puts: PutTimes, offsets: OffsetTable, at: float) -> None:
        """``offsets`` is the table at time ``at``, with which the recording begins."""
        self._puts = puts
        self._offsets, self._at = offsets, at
        self.resets = 0
        """Number of times that an offset moved too fast for a consumer; no pull is derived."""
        self.newcomers = 0
        """Number of queues for which a group committed its first offset."""

    def pulls(self, offsets: OffsetTable, at: float) -> Iterator[DerivedPull]:
        """Yield the pulls between the previous table and ``offsets``, the table at time ``at``."""
        before, since = self._offsets, self._at
        self._offsets, self._at = offsets, at
        for key, row in offsets.items():
            former = before.get(key, {})
            reading = next(readings(key), None)
            if former == row or reading is None:
                continue
            for queue_id, offset in row.items():
                begin = former.get(queue_id)
                if begin is None:
                    self.newcomers += 1
                elif offset - begin > MAX_PER_SECOND * max(at - since, 1.0):
                    self.resets += 1
                else:  # none if the offset is the same or lower
                    yield from self._pulls(
                        reading[0], int(queue_id), range(begin, offset), (since, at)
                    )

    def _pulls(
        self, topic: str, queue_id: int, consumed: range, span: tuple[float, float]
    ) -> Iterator[DerivedPull]:
        """Yield the pulls of the ``consumed`` offsets of one queue in the time ``span``."""
        since, at = span
        tail = consumed.stop
        while (
            tail > consumed.start
            and self._puts.at(topic, queue_id, tail - 1) >= max(since - COMMIT_SECONDS, 0.0)
        ):  # fmt: skip
            tail -= 1
        firsts = range(consumed.start, tail, BATCH)
        for number, offset in enumerate(firsts):
            moment = since + (number + 0.5) / len(firsts) * (at - since)
            yield DerivedPull(topic, queue_id, offset, min(BATCH, tail - offset), moment)
        offset = tail
        while offset < consumed.stop:
            put_at, count = self._puts.at(topic, queue_id, offset), 1
            while (
                count < min(BATCH, consumed.stop - offset)
                and self._puts.at(topic, queue_id, offset + count) == put_at
            ):
                count += 1
            yield DerivedPull(topic, queue_id, offset, count, put_at)
            offset += count
