"""Where many queues begin and end, read a block of queues at a time.

A block takes one scan of ``max`` entries and two reads of many keys, the ``min`` entries and the
units that most likely are the first: a queue takes 3 µs of RocksDB instead of 20. Nothing enters
the cache, which is for queues in use.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from cq_rocksdb.engine import Family, RocksEngine
from cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, min_key, queue_prefix, unit_key
from store.queue.consume_queue_store import QueueSpan
from store.queue.units import QUEUE_UNIT, QueueKey

_BLOCK = 4096


def queue_spans(
    engine: RocksEngine,
    last_units: Iterator[tuple[QueueKey, OffsetEntry]],
    min_phy_offset: int,
    find_min: Callable[[str, int], int],
) -> Iterator[QueueSpan]:
    """Yield the spans of queues with their ``max`` entries.

    ``find_min`` searches the minimum of the few that have another first unit than expected.
    """
    while block := list(islice(last_units, _BLOCK)):
        living = [(key, last) for key, last in block if _lives(last, min_phy_offset)]
        lows = _expected_lows(engine, [key for key, _ in living], min_phy_offset)
        for key, last in block:
            high = max(last.queue_offset + 1, 0)
            low = high
            if _lives(last, min_phy_offset):
                found = next(lows)
                low = min(find_min(*key) if found is None else found, high)
            yield QueueSpan(key, low, high)


def _lives(last: OffsetEntry, min_phy_offset: int) -> bool:
    return last.queue_offset >= 0 and last.phy_offset >= min_phy_offset


def _expected_lows(
    engine: RocksEngine, keys: list[QueueKey], min_phy_offset: int
) -> Iterator[int | None]:
    """Yield the minimum of each queue by its ``min`` entry or the unit there, ``None``: search."""
    prefixes = [queue_prefix(*key) for key in keys]
    entries = engine.multi_get(Family.OFFSET, [min_key(prefix) for prefix in prefixes])
    lows = [
        OFFSET_ENTRY.unpack_from(value)
        if value is not None and len(value) == OFFSET_ENTRY.size
        else OffsetEntry(-1, 0)
        for value in entries
    ]
    wanted = [
        unit_key(prefix, max(low.queue_offset, 0))
        for prefix, low in zip(prefixes, lows, strict=True)
    ]
    units = engine.multi_get(Family.DEFAULT, wanted)
    for low, unit in zip(lows, units, strict=True):
        if low.phy_offset >= min_phy_offset:
            yield low.queue_offset
        elif unit is None or len(unit) < QUEUE_UNIT.size:
            yield None
        else:
            there = QUEUE_UNIT.unpack_from(unit).phy_offset >= min_phy_offset
            yield max(low.queue_offset, 0) if there else None
