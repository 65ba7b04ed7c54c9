"""Estimate of how many messages of a range match a filter (a consumer's lag).

Source: RocketMQ ``ConsumeQueue.estimateMessageCount``, ``BatchConsumeQueue.estimateMessageCount``.
"""

from collections.abc import Callable, Collection, Iterator

from cqstore.store.queue import _estimate
from cqstore.store.queue.units import CqUnit

MessageFilter = Callable[[int | None], bool]
"""Takes a tags code and returns whether the message may match; ``None`` must match."""
_MAX_FAST_CODES = 16


def fast_filter(codes: Collection[int] | None) -> _estimate.FastFilter | None:
    """Return the compiled filter; ``None``: use ``estimate``. Without codes all match."""
    if codes is not None and len(codes) > _MAX_FAST_CODES:
        return None
    return _estimate.FastFilter(codes)


def estimate(
    units: Iterator[CqUnit],
    start: int,
    end: int,
    matches: MessageFilter,
    max_scan: int,
    max_matches: int,
) -> int:
    """Count the messages of [start, end) in ``units`` that satisfy ``matches``.

    A unit of a batch queue counts the messages that it has in the range. As in RocketMQ the limits
    count units; when one is reached, the share of matches so far is applied to the whole range.
    """
    passed = found = matched = 0
    for scanned, unit in enumerate(units):
        if unit.queue_offset >= end:
            return found
        if scanned >= max_scan or matched > max_matches:
            return found * (end - start) // max(passed, 1)
        behind = unit.queue_offset + unit.batch_num
        messages = max(min(behind, end) - max(unit.queue_offset, start), 0)
        passed += messages
        if matches(unit.tags_code):
            matched += 1
            found += messages
    return found
