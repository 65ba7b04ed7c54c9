"""Check whether the settings have the delay levels with which a broker computed due times.

Queues that are built from the log get due times from ``messageDelayLevel``: if it differs from the
broker's, they differ from the existing queues.
"""

from collections.abc import Iterator
from typing import NamedTuple

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import SCHEDULE_TOPIC, MessageProperty
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class UnlikeLevel(NamedTuple):
    """The delay of the newest message of one queue, compared with the settings."""

    queue: QueueKey
    level: str
    by_settings_ms: int
    in_queue_ms: int

    def sentence(self) -> str:
        """Return the difference between settings and queue as a sentence."""
        return (
            f"messageDelayLevel sets delay level {self.level} to {self.by_settings_ms} ms, but the"
            f" newest message in queue {self.queue.queue_id} of {self.queue.topic} waits"
            f" {self.in_queue_ms} ms: the settings (--config) are not those that the broker used"
        )


def unlike_levels(store: MessageStore, levels: str, begin: int) -> Iterator[UnlikeLevel]:
    """Yield each queue whose newest message has another delay than in ``levels``.

    Queues whose newest message is before ``begin``, a phy offset, are skipped: their units are not
    built again. ``store``: open, with the queues as the broker left them.

    Raises:
        StoreError: a queue or a record cannot be read.
    """
    table = DelayLevels(levels)
    begin = max(begin, store.min_phy_offset())
    spans = sorted(store.queue_spans(SCHEDULE_TOPIC), key=lambda span: span.queue.queue_id)
    for queue, _, high in spans:
        yield from _unlike(store, table, queue, high, begin)


def _unlike(
    store: MessageStore, table: DelayLevels, queue: QueueKey, high: int, begin: int
) -> Iterator[UnlikeLevel]:
    """Yield the units of a level's queue whose due time differs from that of ``table``."""
    for unit in components_of(store).queues.queue(*queue).iterate(high - 1):
        if unit.phy_offset < begin or unit.tags_code is None:
            continue
        message = store.message_by_offset(unit.phy_offset)
        level = message.properties.get(MessageProperty.DELAY)
        if level is None:
            continue
        due = table.tags_code(level, message.store_timestamp, unit.tags_code)
        if due != unit.tags_code:
            stored = message.store_timestamp
            yield UnlikeLevel(queue, level, due - stored, unit.tags_code - stored)
