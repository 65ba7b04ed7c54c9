"""Deleted topics that a rollback would restore.

RocketMQ does not record the topics that it deletes, so the old queues still have them. Only the
operator can distinguish such a deletion from a loss.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.backends import backend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.sentences import some_of
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

_NAMED = 5


class DeletedTopicPolicy(StrEnum):
    """Treatment of topics that RocketMQ deleted after the switch, in a rollback."""

    KEEP = "keep"
    """Restore the topics with all their messages."""
    DELETE = "delete"
    """Delete the topics from the old queues too, permanently."""


def returning_topics(
    root: Path, config: StoreConfig, left: str, moved: str | None = None
) -> list[str]:
    """Return the sorted topics of queues that backend ``left`` has and the served one lacks.

    ``moved``: selection of the topics that were moved. Queues of others do not count, nor if their
    records have expired, if a journal contains their deletion, or if their records are still to be
    dispatched. Changes nothing.

    Raises:
        StoreError: a backend cannot be read.
    """
    with MessageStore.open(root, config, read_only=True) as store:
        served = components_of(store).queues
        kept = {each.name: each for each in served.backends()}
        if moved is None and next(iter(kept)) == left:
            return []
        if left in kept:
            return _topics(kept[left], served, components_of(store).deleted, moved)
        queues = backend(left)(replace(served.context, read_only=True)).load()
        try:
            queues.recover()
            return _topics(queues, served, components_of(store).deleted, moved)
        finally:
            queues.close()


def _topics(
    left: ConsumeQueueStore,
    served: ConsumeQueueStore,
    deleted: DeletedTopics,
    moved: str | None = None,
) -> list[str]:
    return sorted({key.topic for key in _queues(left, served, deleted, moved)})


def _queues(
    left: ConsumeQueueStore,
    served: ConsumeQueueStore,
    deleted: DeletedTopics,
    moved: str | None = None,
) -> Iterator[QueueKey]:
    """Yield the queues that ``left`` has and ``served`` lost without an entry in the journal."""
    has_all_before = served.dispatch_from_phy_offset()
    for key in left.queues():
        if not selects(moved, key.topic):
            continue
        queue = left.queue(*key)
        low, high = queue.ends()
        if low >= high or served.queue(*key).max_offset():
            continue
        last = next(queue.iterate(high - 1), None)
        phy_offset = 0 if last is None else last.phy_offset
        if phy_offset < has_all_before and not deleted.has_record(key.topic, phy_offset):
            yield key


def refuse_to_guess(topics: list[str], left: str, root: Path) -> None:
    """Refuse a rollback that would restore deleted topics without a decision of the operator.

    Raises:
        RefusedStoreError: there are such topics; the message names the first ones.
    """
    if not topics:
        return
    raise RefusedStoreError(
        f"{len(topics)} topics have {left} queues, but no queues in the backend that is served:"
        f" {some_of(topics[:_NAMED], len(topics))}. If they were deleted after the switch, pass"
        " --returning delete; to restore them, pass --returning keep (--dry-run lists all of them)",
        path=root,
    )


def delete_missing_topics(store: MessageStore, left: str, moved: str | None = None) -> None:
    """Delete the queues from backend ``left`` that the served backend lacks.

    Topics without remaining queues are deleted durably, so that no replay restores them.
    ``moved``: selection of the topics that were moved; no others are deleted.
    """
    by_name = {each.name: each for each in components_of(store).queues.backends()}
    if left not in by_name:  # detached: the step is refused with the reason
        return
    served = next((each for name, each in by_name.items() if name != left), by_name[left])
    keys = list(_queues(by_name[left], served, components_of(store).deleted, moved))
    whole = {key.topic for key in keys if next(served.queues(key.topic), None) is None}
    for key in keys:
        if key.topic not in whole:
            by_name[left].delete_queue(*key)
    store.delete_topics(sorted(whole))
