"""What makes the replicas of the combined store alike where no replay of the log does.

Source: RocketMQ ``CombineConsumeQueueStore.verifyAndInitOffsetForAllStore``, which starts over what
differs; here the log fills what is lacking, and nothing is hidden.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.queue.backend_replica import BackendReplica
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.units import QueueKey

_LOG = StoreLogger(__name__)
_BLOCK = 4096
"""Queues whose ends are asked for at once."""
IsDeleted = Callable[[str, int], bool]
"""Whether the record of a topic at a phy offset belongs to a deleted incarnation of it."""


class MissingUnits(NamedTuple):
    """Units of one queue that one replica has and the other ought to have."""

    queue: QueueKey
    offsets: range
    is_head: bool
    """They lie before all that the other replica has of the queue."""


def missing_units(
    lagging: BackendReplica, ahead: BackendReplica, is_deleted: IsDeleted, prefix: str = ""
) -> Iterator[MissingUnits]:
    """Yield what ``lagging`` lacks of ``ahead``'s units though it claims to be whole.

    Judged by the ends of each queue: a replica that RocketMQ filled lagging begins later, and one
    that it passed over ends earlier. What a replay from ``lagging.synced_to`` on brings is no lack.
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
    """Yield what ``lagging`` lacks of the queues ``keys``; one that is damaged is passed over."""
    try:
        spans = [*zip(ahead.store.spans_of(keys), lagging.store.spans_of(keys), strict=True)]
        lacks = [_missing_in_queue(lagging, ahead, has, ought, is_deleted) for ought, has in spans]
    except StoreError as exc:
        if len(keys) > 1:
            for key in keys:
                yield from _missing_units(lagging, ahead, [key], is_deleted)
            return
        ((topic, queue_id),) = keys  # one queue's damage; reading it shows that
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
    """Return what ``lagging`` lacks of a queue, before what it has or behind; ``None``: nothing."""
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
    """Fill what ``lagging`` lacks by a replay of the log, if it lacks anything.

    ``note_lagging`` notes durably that it has nothing for sure; called before a queue goes that the
    replay could not fill.
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
    """Refuse to serve ``lagging`` if it lacks anything.

    Raises:
        RefusedStoreError: it does.
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
    """Take over, after a replay, what the log does not contain.

    That is the next offsets of queues that are wholly expired, and that queues were deleted. Of
    what ``lagging`` alone has, that goes which came from this replay, and that which a line of ours
    explains; nothing else.
    """
    for key in ahead.store.queues():
        end = ahead.store.queue(*key).max_offset()
        if not lagging.accepts(key.topic) or end <= lagging.store.queue(*key).max_offset():
            continue
        if not ahead.has_live_units(*key) and not lagging.has_live_units(*key):
            lagging.store.restore_end(*key, end)
    replayed = lagging.was_lagging or lagging.began_empty or lagging.exclusive_queues is not None
    gone = [
        key
        for key in (lagging.store.queues() if replayed else ())
        if ahead.accepts(key.topic)
        and not ahead.store.queue(*key).max_offset()
        and _is_gone(lagging, key, is_deleted)
    ]
    for key in gone:
        _LOG.warning("removing queue %d of topic %r, which was deleted", key.queue_id, key.topic)
        lagging.store.delete_queue(*key)


def _is_gone(lagging: BackendReplica, key: QueueKey, is_deleted: IsDeleted) -> bool:
    """Return whether nothing of a queue lives on that only ``lagging`` has."""
    if lagging.began_empty or not lagging.has_live_units(*key):
        return True
    if lagging.exclusive_queues is not None and key not in lagging.exclusive_queues:
        return True
    queue = lagging.store.queue(*key)
    last = next(queue.iterate(queue.max_offset() - 1), None)
    return last is not None and is_deleted(key.topic, last.phy_offset)
