"""Splitting the union of both sides' queues into ranges, one per task."""

from collections.abc import Iterator

from cqstore.store.comparing.listed_queues import Range, union
from cqstore.store.queue.bulk import HasEnds, UnitSource
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey

RANGE_UNITS = 1_000_000
RANGE_QUEUES = 20_000
_LAST_ID = -1
"""In key order, no queue of a topic follows it."""


def cut_ranges(
    source: QueuePlace,
    target: QueuePlace,
    *,
    max_units: int = RANGE_UNITS,
    max_queues: int = RANGE_QUEUES,
) -> list[Range]:
    """Return ranges that cover all existing and possible queues, in key order.

    A topic is never split. If a side has the ends of all its queues, ranges are computed from that
    side's queues and units only; otherwise from the queues of both.

    Raises:
        RefusedStoreError, CorruptionError, StoreIOError: a side's queues cannot be listed.
    """
    opened = source.open()
    try:
        other = target.open()
        try:
            return list(_cut(opened, other, max_units, max_queues))
        finally:
            other.close()
    finally:
        opened.close()


def _cut(
    source: UnitSource, target: UnitSource, max_units: int, max_queues: int
) -> Iterator[Range]:
    """Yield ranges of whole topics, of about ``max_units`` units or ``max_queues`` queues."""
    after: QueueKey | None = None
    last: QueueKey | None = None
    units = queues = 0
    for queue, end in _ends(source, target):
        full = units >= max_units or queues >= max_queues
        if full and last is not None and queue.topic != last.topic:
            behind = QueueKey(last.topic, _LAST_ID)  # the other side may have more of the topic
            yield after, behind
            after, units, queues = behind, 0, 0
        units += max(end, 0)
        queues += 1
        last = queue
    yield after, None


def _ends(source: UnitSource, target: UnitSource) -> Iterator[tuple[QueueKey, int]]:
    """Yield queues with their next offsets, 0 if files had to be opened to get them."""
    for side in (target, source):
        if isinstance(side, HasEnds):
            return ((queue, end) for queue, end, _ in side.written_ends())
    return ((queue, 0) for queue, _ in union(source, target, (None, None)))
