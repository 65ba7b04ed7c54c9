"""Estimate of how many messages of a range a filter lets through (a consumer's lag).

Source: RocketMQ ``ConsumeQueue.estimateMessageCount``.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from store.core import READS
from store.queue.units import CqUnit

if TYPE_CHECKING:
    from store.core import _reads

MessageFilter = Callable[[int | None], bool]
"""Takes a tags code, says whether the message may match; ``None`` must match."""
_MOST_PLAIN_CODES = 16


def plain_filter(codes: Collection[int] | None) -> "_reads.PlainFilter | None":
    """Return what counts in the core; ``None`` where the twin has to. No codes: all match."""
    if READS is None or (codes is not None and len(codes) > _MOST_PLAIN_CODES):
        return None
    plain: _reads.PlainFilter = READS.PlainFilter(codes)
    return plain


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
