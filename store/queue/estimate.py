"""Estimate of how many messages of a range a filter lets through (a consumer's lag).

Source: RocketMQ ``ConsumeQueue.estimateMessageCount``.
"""

from collections.abc import Callable, Iterator

from store.queue.units import CqUnit

MessageFilter = Callable[[int | None], bool]
"""Takes a tags code, says whether the message may match; ``None`` must match."""


def estimate(
    units: Iterator[CqUnit], total: int, matches: MessageFilter, max_scan: int, max_matches: int
) -> int:
    """Count the matches among the next ``total`` units, extrapolating once a bound is met."""
    scanned = found = 0
    for unit in units:
        if scanned >= total:
            return found
        if scanned >= max_scan or found > max_matches:
            return found * total // scanned
        scanned += unit.batch_num
        found += unit.batch_num if matches(unit.tags_code) else 0
    return found
