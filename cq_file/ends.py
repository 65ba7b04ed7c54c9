"""Finds the ends of a store's queues, and damaged queues, when the store is opened."""

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.damage import DamagedQueues, damage_of, damage_since
from cqstore.cq_file.opening import OpenedQueues
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError
from cqstore.store.path_kind import exists
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueDamage
from cqstore.store.queue.units import QueueKey

_LOG = StoreLogger(__name__)


def find_ends(context: QueueStoreContext, opened: OpenedQueues, damaged: DamagedQueues) -> None:
    """Find the end of every queue whose end is not known. Read-only: changes memory only.

    Raises:
        StoreIOError: an I/O operation failed.
    """
    every = (QueueKey(topic, at) for topic, ids in opened.topics.items() for at in ids)
    keys = opened.unknown if opened.ends_known else every
    safe = context.log.max_phy_offset() if context.last_exit_ok else safe_phy_offset(context)
    for key in keys:
        damage = _find_end(context, opened, key, safe)
        # A read-only open rebuilds no queue, and a check reads the log itself.
        if damage is not None and not (context.read_only and damage.is_suspect):
            damaged.note(damage)
    for batch_queues in opened.batch_topics.values():
        for batch_queue in batch_queues.values():
            batch_queue.recover(read_only=context.read_only)


def _find_end(
    context: QueueStoreContext, opened: OpenedQueues, key: QueueKey, safe: int
) -> QueueDamage | None:
    """Find the end of a queue; return its damage, or ``None``."""
    queue, misfit = opened.topics[key.topic][key.queue_id], opened.misfits.get(key)
    try:
        _recover(context, queue, safe)
    except CorruptionError as exc:
        return QueueDamage(key, exc.reason, str(exc.path or queue.folder))
    left = opened.left.get(key)
    if left is None:
        return damage_of(key, queue, misfit, context.log.min_phy_offset())
    problem = damage_since(left, queue, misfit)
    if problem is None:
        return None
    queue.restore(left.first_offset, left.max_offset, left.last_phy, left.end_phy)
    return QueueDamage(key, problem, misfit or queue.folder, left.max_offset)


def _recover(context: QueueStoreContext, queue: FileConsumeQueue, safe: int) -> None:
    """Find the end of a queue; units that were not synced before a crash are dropped."""
    limit = context.log.max_phy_offset()
    if queue.accept_end(last_exit_ok=context.last_exit_ok, max_phy_offset=limit):
        return
    has_hole = queue.recover(
        last_exit_ok=context.last_exit_ok,
        safe_phy_offset=safe,
        max_phy_offset=limit,
        read_only=context.read_only,
        # After an interrupted cut of the log, the queues still have the units.
        may_lack_files=context.config.spreads_log and not exists(context.paths.cutting),
    )
    if has_hole:
        _LOG.warning("units are missing in the middle of the queue in %r", queue.folder)


def safe_phy_offset(context: QueueStoreContext) -> int:
    """Return the log position up to which units were on disk before a crash."""
    checkpoint = context.checkpoint
    if checkpoint.logics_phy_offset > 0:
        return checkpoint.logics_phy_offset
    if checkpoint.min_timestamp > 0:
        return max(context.log.file_offset_by_timestamp(checkpoint.min_timestamp), 0)
    return 0
