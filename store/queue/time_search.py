"""Search of a queue by store time: one result for every backend, that of RocketMQ's files.

Source: RocketMQ ``ConsumeQueue.binarySearchInQueueByTime``,
``DefaultMessageStore.getOffsetInQueueByTime``.
"""

from collections.abc import Callable
from enum import Enum

from cqstore.store.queue import _time_search


class BoundaryType(Enum):
    """Which unit to choose around a point in time."""

    LOWER = "lower"
    UPPER = "upper"


def search_offset(
    min_offset: int,
    max_offset: int,
    timestamp: int,
    boundary: BoundaryType,
    timestamp_at: Callable[[int], int],
) -> int:
    """Return the offset in [min_offset, max_offset] for ``timestamp``.

    ``timestamp_at`` returns a unit's store time in ms, -1 if its record is gone; it is called O(log
    n) times. Times must not decrease with the offset, otherwise the result is one of several.
    """
    return _time_search.search_offset(
        min_offset, max_offset, timestamp, boundary is BoundaryType.UPPER, timestamp_at
    )
