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
    """Count the matches among the units of the next ``total`` offsets.

    Once a bound is met the share of matches is taken of ``total``. As in RocketMQ a unit of a batch
    queue counts once, however many messages it holds.
    """
    passed = found = 0
    for scanned, unit in enumerate(units):
        if passed >= total:
            return found
        if scanned >= max_scan or found > max_matches:
            return found * total // scanned
        passed += unit.batch_num
        found += matches(unit.tags_code)
    return found
