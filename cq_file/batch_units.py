"""The units of a dispatched batch that belong to batch queues.

Source: RocketMQ ``BatchConsumeQueue.putMessagePositionInfoWrapper``.
"""

from collections.abc import Callable, Iterator

import numpy as np

from cqstore.cq_file.layout import BatchUnit
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, UnitBatch

_LOG = StoreLogger(__name__)
_NO_COMPACTED_OFFSET = -1


def split_batch(
    batch: UnitBatch, has_batches: Callable[[str], bool], takes_batches: Callable[[str], bool]
) -> tuple[UnitBatch, UnitBatch]:
    """Return the units of simple queues, and those of batch queues.

    ``has_batches``: the topic has batch queues; ``takes_batches``: it has them, or gets them with
    its first inner batch.
    """
    new = {key for key in batch.batch_queues() if takes_batches(key.topic)}
    of_batches = np.array([key in new or has_batches(key.topic) for key in batch.queues], bool)
    if not of_batches.any():
        return batch, UnitBatch()
    return batch.of_queues(~of_batches), batch.of_queues(of_batches)


def units_by_queue(batch: UnitBatch) -> Iterator[tuple[QueueKey, list[BatchUnit]]]:
    """Yield each batch queue with its units, in log order.

    A record that is not an inner batch has no unit, as in RocketMQ: no consumer gets its messages.
    """
    runs = batch.runs()  # refuses impossible offsets
    sizes = batch.batch_sizes
    for queue, offset, start, end in zip(
        runs.queues, runs.first_offsets, runs.starts, runs.ends, strict=True
    ):
        units: list[BatchUnit] = []
        rows = QUEUE_UNIT.iter_unpack(np.ascontiguousarray(runs.units[start:end]).tobytes())
        for base, row in enumerate(rows, offset):
            size = sizes.get(row.phy_offset)
            if size is None:
                _LOG.warning(
                    "the record at %d in BatchCQ topic %r is not an inner batch: no consumer gets"
                    " it (RocketMQ has no unit for it either)", row.phy_offset, queue.topic,
                )  # fmt: skip
                continue
            units.append(BatchUnit(*row, base, size, _NO_COMPACTED_OFFSET, 0))
        if units:
            yield queue, units
