"""Comparison of the sides' queues before anything is measured: digests first, then details.

Each side's process computes digests of its queues; the parent compares them. If they differ, it
compares the queues, then the units of the first different queue.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from cqstore.store.queue.units import PACKED_PREFIX, QueueKey, UnitBlock
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_BLOCK = 8192


class QueueDigest(NamedTuple):
    """Offsets and digest of one queue."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    units: int
    digest: str


def queue_digests(store: MessageStore) -> Iterator[QueueDigest]:
    """Yield every queue, sorted; its digest is over phy offset, size and tags code of its units."""
    for key in sorted(store.queue_keys()):
        low, high = store.min_offset(*key), store.max_offset(*key)
        digest, units = blake2b(digest_size=16), 0
        for _, found in _blocks(store, key, low, high):
            if isinstance(found, range):
                digest.update(f"hole to {found.stop}".encode())
                continue
            rows = np.frombuffer(found.data, np.uint8).reshape(-1, found.stride)
            digest.update(rows[:, :PACKED_PREFIX].tobytes())
            units += found.count
        yield QueueDigest(*key, low, high, units, digest.hexdigest())


def whole_digest(store: MessageStore) -> tuple[str, int, int]:
    """Return a digest of all queues, the number of queues, and the number of units."""
    digest, queues, units = blake2b(digest_size=16), 0, 0
    for each in queue_digests(store):
        digest.update(f"{each}\n".encode("utf-8", "surrogatepass"))
        queues += 1
        units += each.units
    return digest.hexdigest(), queues, units


def unit_rows(store: MessageStore, key: QueueKey) -> Iterator[str]:
    """Yield each unit of a queue as text, offset first; a missing unit is marked as such."""
    low, high = store.min_offset(*key), store.max_offset(*key)
    for at, found in _blocks(store, key, low, high):
        if isinstance(found, range):
            yield from (f"{offset}: missing" for offset in found)
            continue
        for offset, (phy_offset, size, code) in enumerate(found.rows(), at):
            yield f"{offset}: phy offset {phy_offset}, size {size}, tags code {code}"


def _blocks(
    store: MessageStore, key: QueueKey, low: int, high: int
) -> Iterator[tuple[int, UnitBlock | range]]:
    """Yield the blocks of a queue, and the offsets of its holes, each with its first offset."""
    queue, at = components_of(store).queues.queue(*key), low
    while at < high:
        block = queue.read_units(at, min(_BLOCK, high - at))
        if block.count:
            yield at, block
            at += block.count
        else:
            hole = range(at, block.hole.stop if block.hole is not None else high)
            yield at, hole
            at = hole.stop


def first_difference(
    mine: Iterator[QueueDigest], other: Iterator[QueueDigest]
) -> tuple[QueueKey, str, str] | None:
    """Return the first queue that differs between two sides, with its state on each side."""
    for one, two in zip_longest(mine, other):
        if one == two:
            continue
        known = [QueueKey(each.topic, each.queue_id) for each in (one, two) if each is not None]
        key = min(known)
        return key, _offsets_of(one, key), _offsets_of(two, key)
    return None


def _offsets_of(found: QueueDigest | None, key: QueueKey) -> str:
    if found is None or (found.topic, found.queue_id) != key:
        return "queue does not exist"
    return f"offsets {found.min_offset} to {found.max_offset - 1}, {found.units} units"
