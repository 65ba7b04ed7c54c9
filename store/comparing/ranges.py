"""Cutting the union of both sides' queues into ranges, the work of a task each."""

from collections.abc import Iterator

from store.comparing.comparison import Range, union
from store.errors import CorruptionError
from store.queue.bulk import UnitSource
from store.queue.places import QueuePlace
from store.queue.units import QueueKey

RANGE_UNITS = 1_000_000
RANGE_QUEUES = 100_000


def cut_ranges(
    source: QueuePlace,
    target: QueuePlace,
    *,
    most_units: int = RANGE_UNITS,
    most_queues: int = RANGE_QUEUES,
) -> list[Range]:
    """Return ranges that cover every queue there is and may come to be, in key order.

    A topic is never cut in two. Where a side has written down how far its queues go, the cuts are
    made by that side's queues and their units alone; else by the queues of both.

    Raises:
        RefusedStoreError, CorruptionError, StoreIOError: a side's queues cannot be listed.
    """
    opened = source.open()
    try:
        other = target.open()
        try:
            return list(_cut(opened, other, most_units, most_queues))
        finally:
            other.close()
    finally:
        opened.close()


def _cut(
    source: UnitSource, target: UnitSource, most_units: int, most_queues: int
) -> Iterator[Range]:
    told = [side for side in (source, target) if side.has_timestamps]  # files must be opened
    after: QueueKey | None = None
    last: QueueKey | None = None
    units = queues = 0
    for queue in _names(told, source, target):
        full = units >= most_units or queues >= most_queues
        if full and last is not None and queue.topic != last.topic:
            yield after, last
            after, units, queues = last, 0, 0
        units += max((_end(side, queue) for side in told), default=0)
        queues += 1
        last = queue
    yield after, None


def _names(told: list[UnitSource], source: UnitSource, target: UnitSource) -> Iterator[QueueKey]:
    if len(told) == 1:
        return told[0].queues(None, None)
    return (queue for queue, _ in union(source, target, (None, None)))


def _end(side: UnitSource, queue: QueueKey) -> int:
    try:
        return side.next_offset(queue)
    except CorruptionError:
        return 0  # reported by the task that compares the queue
