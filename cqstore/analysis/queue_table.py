"""The consume queues as a table: one row per unit, from each queue's min to its max offset.

Queues are in RocksDB's key order: by length of the topic in bytes, topic, queue id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cqstore.analysis.columns import TableColumn
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.unit_columns import UnitTableColumns
from cqstore.store.queue.bulk import key_order
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.opening.components import components_of


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Range of one task: the units [``first[i]``, ``end[i]``) of queue *i*, as queue offsets."""

    topics: list[str]
    topic_index: NDArray[np.int32]
    queue_ids: NDArray[np.int32]
    first: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def of(cls, spans: Sequence[tuple[QueueKey, int, int]]) -> "QueuePart":
        """Return the part of these queues with first and end offset."""
        index: dict[str, int] = {}
        topics = [index.setdefault(key.topic, len(index)) for key, _, _ in spans]
        return cls(
            list(index),
            np.array(topics, np.int32),
            np.array([key.queue_id for key, _, _ in spans], np.int32),
            np.array([first for _, first, _ in spans], np.int64),
            np.array([end for _, _, end in spans], np.int64),
        )

    def spans(self) -> Iterator[tuple[QueueKey, int, int]]:
        """Yield the queues with first and end offset."""
        for index, queue_id, first, end in zip(
            self.topic_index.tolist(), self.queue_ids.tolist(), self.first.tolist(),
            self.end.tolist(), strict=True,
        ):  # fmt: skip
            yield QueueKey(self.topics[index], queue_id), first, end


def plan_queues(options: SourceOptions, rows: RowFilter) -> list[QueuePart]:
    """Return the tasks that together contain every requested unit.

    A task has about ``partition_units`` units: small queues share one, large queues have several.

    Raises:
        StoreError: there is no store, or it cannot be read.
    """
    with options.open_store() as store:
        spans = list(_spans(components_of(store).queues, rows))
    parts: list[QueuePart] = []
    waiting: list[tuple[QueueKey, int, int]] = []
    room = options.partition_units
    for key, first, end in spans:
        at = first
        while at < end:
            step = min(end - at, room)
            waiting.append((key, at, at + step))
            at, room = at + step, room - step
            if not room:
                parts.append(QueuePart.of(waiting))
                waiting, room = [], options.partition_units
    return [*parts, QueuePart.of(waiting)] if waiting else parts


def read_queues(
    options: SourceOptions, columns: Sequence[TableColumn], rows: RowFilter, part: QueuePart
) -> Iterator[pa.RecordBatch]:
    """Yield the requested units of ``part``, as ``columns``; a hole has no rows.

    Raises:
        StoreError: the store cannot be read.
    """
    with options.open_store() as store:
        yield from UnitTableColumns(columns, rows).batches(store, part.spans())


def _spans(queues: ConsumeQueueStore, rows: RowFilter) -> Iterator[tuple[QueueKey, int, int]]:
    """Yield the requested queues with their requested offsets, in key order."""
    ids, offsets = rows.span("queue_id"), rows.span("queue_offset")
    named = [None] if rows.topics is None else sorted(rows.topics)
    keys = {
        key
        for topic in named
        for key in queues.queues(topic)
        if rows.accepts_topic(key.topic) and ids.holds(key.queue_id)
    }
    for key in sorted(keys, key=key_order):
        low, high = queues.queue(*key).ends()
        first, end = max(low, offsets.low), min(high, offsets.high + 1)
        if first < end:
            yield key, first, end
