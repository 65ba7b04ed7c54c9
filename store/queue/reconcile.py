"""Reconciling the replicas of the combined store, if a replay of the log cannot.

Source: RocketMQ ``CombineConsumeQueueStore.verifyAndInitOffsetForAllStore``, which resets queues
that differ; here the log fills missing units, and nothing is hidden.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.queue.backend_replica import BackendReplica
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.queue_reads import QueueEnd
from cqstore.store.queue.units import QueueKey

_LOG = StoreLogger(__name__)
_BLOCK = 4096
"""Number of queues whose ends are read at once."""
IsDeleted = Callable[[str, int], bool]
"""Whether the record of a topic at a phy offset belongs to a deleted incarnation."""


class MissingUnits(NamedTuple):
    """Units of one queue that one replica has and the other one should have."""

    queue: QueueKey
    offsets: range
    is_head: bool
    """They precede all units that the other replica has of the queue."""


def missing_units(
    lagging: BackendReplica, ahead: BackendReplica, is_deleted: IsDeleted, prefix: str = ""
) -> Iterator[MissingUnits]:
    """Yield units of ``ahead`` that ``lagging`` lacks although it claims to be complete.

    The ends of each queue show it: a replica that RocketMQ filled late begins later, and one that
    it skipped ends earlier. Units that a replay from ``lagging.synced_to`` on restores are not
    missing.
    """
    keys = (
        key for key in ahead.store.queues(prefix=prefix)
        if lagging.accepts(key.topic) and ahead.accepts(key.topic)
    )  # fmt: skip
    while block := list(islice(keys, _BLOCK)):
        yield from _missing_units(lagging, ahead, block, is_deleted)


def _missing_units(
    lagging: BackendReplica, ahead: BackendReplica, keys: list[QueueKey], is_deleted: IsDeleted
) -> Iterator[MissingUnits]:
    """Yield missing units of ``lagging`` in the queues ``keys``; a damaged queue is skipped."""
    try:
        spans = [*zip(ahead.store.spans_of(keys), lagging.store.spans_of(keys), strict=True)]
        lacks = [_missing_in_queue(lagging, ahead, has, ought, is_deleted) for ought, has in spans]
    except StoreError as exc:
        if len(keys) > 1:
            for key in keys:
                yield from _missing_units(lagging, ahead, [key], is_deleted)
            return
        ((topic, queue_id),) = keys  # one damaged queue; reading it reports the damage
        _LOG.warning("cannot compare queue %d of topic %r: %s", queue_id, topic, exc)
        return
    yield from (lack for lack in lacks if lack is not None)


def _missing_in_queue(
    lagging: BackendReplica,
    ahead: BackendReplica,
    has: QueueSpan,
    ought: QueueSpan,
    is_deleted: IsDeleted,
) -> MissingUnits | None:
    """Return the units of a queue that ``lagging`` lacks, before or after its own, or ``None``."""
    key, low, high = ought
    _, begin, end = has
    if low >= high or (begin <= low and high <= end and begin < end):
        return None
    is_head = begin > low or begin >= end > 0
    first = low if is_head else max(end, low)
    last = min(begin, high) if is_head and begin < end else high
    block = ahead.store.queue(*key).read_units(first, 1)
    phy_offset = next((row[0] for row in block.rows()), 0)
    if is_deleted(key.topic, phy_offset) or (phy_offset >= lagging.synced_to and not is_head):
        return None
    return MissingUnits(key, range(first, last), is_head)


def backfill(
    lagging: BackendReplica,
    ahead: BackendReplica,
    is_deleted: IsDeleted,
    note_lagging: Callable[[], object],
) -> None:
    """Restore missing units of ``lagging`` by a replay of the log, if there are any.

    ``note_lagging`` records durably that no unit is certain; called before a queue is removed that
    the replay could not fill.
    """
    units = queues = 0
    for lack in missing_units(lagging, ahead, is_deleted):
        if not queues:
            note_lagging()
            lagging.exclusive_queues = {
                key for key in lagging.store.queues() if not ahead.store.queue(*key).max_offset()
            }
        queues += 1
        units += len(lack.offsets)
        if lack.is_head and not lagging.store.fills_holes:
            lagging.store.delete_queue(*lack.queue)
    if queues:
        lagging.synced_to = 0
        _LOG.warning(
            "%d of the %s queues lack %d units that the %s queues have; they are filled from the"
            " log",
            queues, lagging.name, units, ahead.name,
        )  # fmt: skip


def refuse_lack(
    lagging: BackendReplica, ahead: BackendReplica, is_deleted: IsDeleted, root: Path
) -> None:
    """Refuse to serve ``lagging`` if it lacks units.

    Raises:
        RefusedStoreError: units are missing.
    """
    lack = next(missing_units(lagging, ahead, is_deleted), None)
    if lack is not None:
        (topic, queue_id), offsets, _ = lack
        raise RefusedStoreError(
            f"the {lagging.name} queues lack units that the {ahead.name} queues have (queue"
            f" {queue_id} of topic {topic!r}, units {offsets.start} to {offsets.stop - 1}). Run"
            f" cqstore recover to fill them, or read the other backend (--backend {ahead.name})",
            path=root,
        )


def reconcile_unlogged(
    lagging: BackendReplica, ahead: BackendReplica, is_deleted: IsDeleted
) -> None:
    """Copy state that the log does not contain from ``ahead``, after a replay.

    This is the next offsets of completely expired queues, and the deletion of queues. Of queues
    that only ``lagging`` has, those are removed that this replay created or that a line of ours
    explains; no others.
    """
    replayed = lagging.was_lagging or lagging.began_empty or lagging.exclusive_queues is not None
    gone: list[QueueKey] = []
    shared, lacks = 0, False
    for key, held, end in _ends(lagging, ahead):
        shared += end > 0 and lagging.accepts(key.topic)
        lacks |= held < end
        if replayed and not end and _is_gone(lagging, key, is_deleted):
            gone.append(key)
    if lacks or shared < sum(1 for _, end in _shared_ends(ahead, lagging) if end):
        _restore_ends(lagging, ahead)
    for key in gone:
        _LOG.warning("removing queue %d of topic %r, which was deleted", key.queue_id, key.topic)
        lagging.store.delete_queue(*key)


def _restore_ends(lagging: BackendReplica, ahead: BackendReplica) -> None:
    """Copy the next offsets of completely expired queues."""
    for key, end, held in _ends(ahead, lagging):
        if end <= held:
            continue
        if not ahead.has_live_units(*key) and not lagging.has_live_units(*key):
            lagging.store.restore_end(*key, end)


def _shared_ends(one: BackendReplica, other: BackendReplica) -> Iterator[QueueEnd]:
    """Yield the queues of ``one`` that ``other`` gets too, with their max offsets."""
    return (each for each in one.store.queue_ends() if other.accepts(each[0].topic))


def _ends(one: BackendReplica, other: BackendReplica) -> Iterator[tuple[QueueKey, int, int]]:
    """Yield the queues of ``one`` that ``other`` gets too, with their max offsets in both."""
    ends = _shared_ends(one, other)
    while block := list(islice(ends, _BLOCK)):
        of_other = other.store.queue_ends([key for key, _ in block])
        for (key, end), (_, found) in zip(block, of_other, strict=True):
            yield key, end, found


def _is_gone(lagging: BackendReplica, key: QueueKey, is_deleted: IsDeleted) -> bool:
    """Return whether a queue that only ``lagging`` has was deleted completely."""
    if lagging.began_empty or not lagging.has_live_units(*key):
        return True
    if lagging.exclusive_queues is not None and key not in lagging.exclusive_queues:
        return True
    queue = lagging.store.queue(*key)
    last = next(queue.iterate(queue.max_offset() - 1), None)
    return last is not None and is_deleted(key.topic, last.phy_offset)
