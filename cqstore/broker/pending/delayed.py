"""Pending messages of delay levels: queues of ``SCHEDULE_TOPIC_XXXX`` from their positions.

Source: RocketMQ ``ScheduleMessageService``.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from cqstore.broker.pending.pending_parts import PendingMessage, PendingPart, PendingSource, Step
from cqstore.store.progress import noop
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.facts import known_time
from cqstore.store.queue.units import EXT_ADDRESS_MAX
from cqstore.store.record.message import SCHEDULE_TOPIC, MessageProperty
from cqstore.store.service.dispatching.delay import DelayLevels, deliver_time
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_BLOCK_UNITS = 1 << 16


def delayed_units(store: MessageStore, positions: Mapping[int, int]) -> int:
    """Return the number of pending units by the ends of the queues, including holes."""
    spans = store.queue_spans(SCHEDULE_TOPIC)
    return sum(max(high - max(positions.get(key.queue_id + 1, low), low), 0)
               for key, low, high in spans)  # fmt: skip


def delay_levels(
    store: MessageStore, positions: Mapping[int, int], now: int, step: Step = noop
) -> Iterator[PendingPart]:
    """Yield each level that has a queue, in ascending order.

    ``positions``: level → the broker's next queue offset; ``now`` in ms. ``step`` is called with
    the number of units read.

    Raises:
        StoreError: a queue cannot be read.
    """
    spans = sorted(store.queue_spans(SCHEDULE_TOPIC), key=lambda span: span.queue.queue_id)
    for (topic, queue_id), low, high in spans:
        queue = components_of(store).queues.queue(topic, queue_id)
        part = PendingPart(
            PendingSource.DELAY, queue_id + 1, positions.get(queue_id + 1, low), high
        )
        begin = max(part.position, low)
        for due in _due_times(store, queue, begin, high):
            step(len(due))
            part.pending += len(due)
            part.overdue += int((due <= now).sum())
            first, last = int(due.min()), int(due.max())
            part.first_due = first if part.first_due is None else min(first, part.first_due)
            part.last_due = last if part.last_due is None else max(last, part.last_due)
        if part.pending:
            part.oldest = known_time(queue.unit_timestamp(begin))
        yield part


def delayed_messages(
    store: MessageStore, positions: Mapping[int, int], step: Step = noop
) -> Iterator[PendingMessage]:
    """Yield each pending message by level and queue offset; its record is read.

    ``step`` is called for each message.

    Raises:
        StoreError: a queue or a record cannot be read.
    """
    spans = sorted(store.queue_spans(SCHEDULE_TOPIC), key=lambda span: span.queue.queue_id)
    for (topic, queue_id), low, high in spans:
        begin = max(positions.get(queue_id + 1, low), low)
        delay_ms = _delay_ms(store, queue_id)
        for unit in components_of(store).queues.queue(topic, queue_id).iterate(begin):
            if unit.queue_offset >= high:
                break
            step(1)
            message = store.message_by_offset(unit.phy_offset)
            properties = message.properties
            due = deliver_time(
                unit.tags_code, delay_ms, components_of(store).log, unit.phy_offset, unit.size
            )
            yield PendingMessage(
                PendingSource.DELAY, queue_id + 1, unit.queue_offset, unit.phy_offset,
                message.store_timestamp, due, properties.get(MessageProperty.REAL_TOPIC),
                properties.get(MessageProperty.UNIQ_KEY), None, None,
            )  # fmt: skip


def _due_times(
    store: MessageStore, queue: ConsumeQueue, begin: int, end: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the delivery times of the units [``begin``, ``end``) in ms; holes are skipped."""
    delay_ms = _delay_ms(store, queue.queue_id)
    for block in queue.blocks(begin, end, _BLOCK_UNITS):
        units = block.columns()
        due = units["tags_code"].astype(np.int64)
        for row in np.flatnonzero(due <= EXT_ADDRESS_MAX).tolist():
            phy_offset, size = int(units["phy_offset"][row]), int(units["size"][row])
            code = queue.resolve_tags_code(int(due[row]))
            due[row] = deliver_time(code, delay_ms, components_of(store).log, phy_offset, size)
        yield due


def _delay_ms(store: MessageStore, queue_id: int) -> int:
    """Return the delay in ms of the level of this queue; 0 if there is no such level."""
    delays = DelayLevels(store.config.message_delay_level).delays_ms
    return delays[queue_id] if queue_id < len(delays) else 0
