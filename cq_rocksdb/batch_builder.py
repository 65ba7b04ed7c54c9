"""BatchBuilder: makes one atomic write of a batch of units.

Queues that simply go on are a compiled job's, all others are planned in Python. Where a batch has
both kinds, what was planned goes into the write of the job: readers see the ends of all its queues
move at once, and a failure leaves nothing of the batch. A plan that refuses does so before anything
is written.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cq_rocksdb.batch_plan import BatchPlan, MinPhyOffset
from cq_rocksdb.engine import RocksEngine
from cq_rocksdb.keys import CHECKPOINT_ENTRY, CHECKPOINT_KEY, CheckpointEntry, check_topic
from cq_rocksdb.offset_table import OffsetTable
from cq_rocksdb.unit_table import UnitTable
from store.queue.facts import QueueRestart
from store.queue.units import UnitBatch

if TYPE_CHECKING:
    from cq_rocksdb._append import AppendJob


class BatchWrite(NamedTuple):
    """The write of a batch."""

    apply: Callable[[], object]
    on_applied: Callable[[], object]
    """Moves the ends that readers are told; called once ``apply`` has returned."""
    restarts: list[QueueRestart]


class BatchBuilder:
    """Builds the writes of one store. One thread at a time; nothing is written here."""

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
        """Fallbacks: units of queues that the compiled job left to the plan."""

    def build(self, batch: UnitBatch) -> BatchWrite | None:
        """Return the write of ``batch``; ``None``: it would change nothing.

        The checkpoint entry never goes back (RocketMQ's does, while it replays).

        Raises:
            QueueGapError: a unit lies beyond the end of a queue that has live units.
            IllegalMessageError: no key can hold a topic.
            CorruptionError: a queue offset is impossible.
        """
        job = self._engine.append_job(batch)
        if job is None or not self._offsets.knows_ends(job):
            return self._by_plan(batch)
        return self._by_job(batch, job)

    def _by_job(self, batch: UnitBatch, job: "AppendJob") -> BatchWrite:
        odd = job.odd_queues()
        plan = None if odd is None else self._plan(batch.of_queues(np.frombuffer(odd, np.bool_)))
        others = None if plan is None else plan.write
        ends = None if plan is None else plan.ends()
        checkpoint = max(self._offsets.checkpoint(), batch.end_phy_offset)
        return BatchWrite(
            partial(self._engine.append, job, checkpoint_put(checkpoint), others),
            partial(self._offsets.batch_written, checkpoint, job, ends),
            [] if plan is None else plan.restarts,
        )

    def _by_plan(self, batch: UnitBatch) -> BatchWrite | None:
        plan, offsets = self._plan(batch), self._offsets
        write, checkpoint = plan.write, max(offsets.checkpoint(), batch.end_phy_offset)
        if checkpoint == offsets.checkpoint() and not (len(write.units) or plan.restarts):
            return None
        write.puts.append(checkpoint_put(checkpoint))
        return BatchWrite(
            partial(self._engine.write, write),
            partial(offsets.batch_written, checkpoint, None, plan.ends()),
            plan.restarts,
        )

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
