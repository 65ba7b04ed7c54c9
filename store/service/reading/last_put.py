"""Store time of the newest message of a topic."""

from collections.abc import Iterable
from typing import NamedTuple

from cqstore.store.queue.facts import QueueSpan, known_time
from cqstore.store.queue.queue_reads import QueueReads


class LastPut(NamedTuple):
    """The newest store time of several queues."""

    newest: int | None
    """In ms; ``None``: no queue has a message with a known store time."""
    is_known: bool
    """Whether the newest store time of every queue with messages is known."""

    def is_before(self, timestamp_ms: float) -> bool:
        """Return whether all messages were stored before a time, or no message is left."""
        return self.is_known and (self.newest is None or self.newest < timestamp_ms)


def last_put(queues: QueueReads, spans: Iterable[QueueSpan]) -> LastPut:
    """Return the newest store time of ``spans``; queues without messages do not count."""
    filled = [span for span in spans if span.min_offset < span.max_offset]
    times = [
        known_time(queues.queue(*span.queue).unit_timestamp(span.max_offset - 1)) for span in filled
    ]
    known = [timestamp for timestamp in times if timestamp is not None]
    return LastPut(max(known, default=None), len(known) == len(times))
