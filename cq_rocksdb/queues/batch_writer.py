"""BatchWriter: writes a batch of units atomically.

Queues whose units simply follow the last one are handled by a compiled job, all others are planned
in Python. If a batch has both kinds, the plan is part of the job's write: readers see the ends of
all its queues change at once, and a failure leaves nothing of the batch. A plan refuses a batch
before anything is written.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from cqstore.cq_rocksdb.engine.rocks_engine import RocksEngine
from cqstore.cq_rocksdb.keys import CHECKPOINT_ENTRY, CHECKPOINT_KEY, CheckpointEntry, check_topic
from cqstore.cq_rocksdb.queues.batch_plan import BatchPlan, MinPhyOffset
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch

Apply = Callable[[Callable[[], object], Callable[[], object]], None]
"""Calls the write, and then the update of the ends in memory, as one step."""


class BatchWriter:
    """Writer of the batches of one store. One thread at a time."""

    def __init__(
        self,
        engine: RocksEngine,
        offsets: OffsetTable,
        units: UnitTable,
        min_phy_offset: MinPhyOffset,
    ) -> None:
        self._engine = engine
        self._offsets = offsets
        self._units = units
        self._min_phy_offset = min_phy_offset
        self.planned_units = 0
        """Number of fallbacks: units of queues that the compiled job left to the plan."""

    def write(self, batch: UnitBatch, apply: Apply) -> list[QueueRestart]:
        """Write ``batch``, its ``max`` entries and the checkpoint entry, if anything changes.

        The checkpoint entry never decreases (RocketMQ's does during a replay).

        Raises:
            QueueGapError: a unit is beyond the end of a queue that has live units.
            IllegalMessageError: a key cannot contain a topic.
            CorruptionError: a queue offset is out of range.
        """
        engine, offsets = self._engine, self._offsets
        job = engine.append_job(batch)
        if job is None or not job.is_fast or not offsets.knows_ends(job):
            return self._write_planned(batch, apply)
        irregular = job.irregular_queues()
        checkpoint = max(offsets.checkpoint(), batch.end_phy_offset)
        put = checkpoint_put(checkpoint)
        if irregular is None:
            write = partial(engine.append, job, put)
            apply(write, partial(offsets.batch_written, checkpoint, job))
            return []
        plan = self._plan(batch.of_queues(np.frombuffer(irregular, np.bool_)))
        write = partial(engine.append, job, put, plan.write)
        apply(write, partial(offsets.batch_written, checkpoint, job, plan.ends()))
        return plan.restarts

    def _write_planned(self, batch: UnitBatch, apply: Apply) -> list[QueueRestart]:
        """Write a batch on the slow path; return the queues that restarted."""
        plan, offsets = self._plan(batch), self._offsets
        write, checkpoint = plan.write, max(offsets.checkpoint(), batch.end_phy_offset)
        if checkpoint == offsets.checkpoint() and not (len(write.units) or plan.restarts):
            return []
        write.puts.append(checkpoint_put(checkpoint))
        written = partial(offsets.batch_written, checkpoint, None, plan.ends())
        apply(partial(self._engine.write, write), written)
        return plan.restarts

    def _plan(self, batch: UnitBatch) -> BatchPlan:
        for topic in {queue.topic for queue in batch.queues}:
            check_topic(topic)
        plan = BatchPlan(batch.runs(), self._offsets, self._units, self._min_phy_offset)
        plan.plan()
        self.planned_units += len(batch)
        return plan


def checkpoint_put(phy_offset: int) -> tuple[bytes, bytes]:
    """Return key and value of the checkpoint entry."""
    return CHECKPOINT_KEY, CHECKPOINT_ENTRY.pack(CheckpointEntry(phy_offset))
