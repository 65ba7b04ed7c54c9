"""Search of a queue by store time: one result for every backend, that of RocketMQ's files.

Source: RocketMQ ``ConsumeQueue.binarySearchInQueueByTime``,
``DefaultMessageStore.getOffsetInQueueByTime``.
"""

from collections.abc import Callable
from enum import Enum


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
    low, high = min_offset, max_offset
    upper = boundary is BoundaryType.UPPER
    while low < high:  # invariant: units before low are earlier, units from high on are later
        middle = (low + high) // 2
        at = timestamp_at(middle)
        if at < timestamp or (upper and at == timestamp):
            low = middle + 1
        else:
            high = middle
    if upper:
        return max(low - 1, min_offset)
    return low
