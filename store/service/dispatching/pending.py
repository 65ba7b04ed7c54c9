"""Pending: appended records that wait in memory for the queues and the index.

The writer's side of the dispatch. One lock guards everything that an append changes: the end of the
log, the next offsets of the queues, and the waiting units and keys.

Source: RocketMQ ``CommitLog.putMessageLock``, ``ReputMessageService``.
"""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log.commit_log import Appended
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QUEUE_UNIT, UnitBatch
from cqstore.store.record.properties import DispatchProperties
from cqstore.store.record.scan import RecordScan
from cqstore.store.service.dispatching import _waiting
from cqstore.store.service.dispatching.queue_offsets import QueueOffsets
from cqstore.store.service.dispatching.record_batcher import RecordBatcher, RecordBatches
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.runtime.running_state import CriticalSection, RunningState


class Appends(NamedTuple):
    """Consecutive appended records, as their units and keys."""

    units: UnitBatch
    keys: IndexBatch
    last: Appended | None
    """The last record, also if it has neither unit nor key."""


NOTHING = Appends(UnitBatch(), IndexBatch(), None)
"""No records."""


class Pending(_waiting.Waiting):
    """The units and keys that wait for dispatch. All under ``lock``, unless noted otherwise."""

    def __init__(
        self, queues: ConsumeQueueStore, units: RecordUnits, keys: RecordKeys, state: RunningState
    ) -> None:
        self.owner = CheckedLock("an append")
        """One append at a time: acquired first, with ``owner.entry(), lock``."""
        self.lock = threading.Lock()
        """Under ``owner``; ``FastPut`` checks it to see whether a thread appends."""
        state.locks.add(self.owner)
        self.appending = CriticalSection(state, "an append")
        """Guards the steps of an append; another thread finds all of them done, or none."""
        self.offsets = QueueOffsets(queues)
        self.units = UnitBatch()
        """Any thread may read its length, and ``end_phy_offset``: 0 if nothing waits."""
        self._record_units = units
        self._batcher: RecordBatcher | None = None  # for records of another store
        self.delays = units.delays
        self.record_keys = keys
        self.keys = IndexBatch()
        self.last = None

    def note_light(self, topic: str, properties: DispatchProperties, appended: Appended) -> None:
        """Add the light queues of a record that was added with its own queue."""
        self._record_units.add_light(
            self.units.add, topic, appended.phy_offset, appended.size, properties.tags_code,
            appended.store_timestamp, properties,
        )  # fmt: skip

    def batches_of(self, blocks: Iterable[RecordScan]) -> RecordBatches:
        """Return the units and keys of records with offsets, apart from the waiting ones for now.

        Raises:
            CorruptionError: no valid record where one should start.
        """
        if self._batcher is None:
            self._batcher = RecordBatcher(self._record_units, self.record_keys)
        return self._batcher.batches_of(blocks)

    def add_raw(self, batches: RecordBatches, next_offsets: Iterable[int]) -> None:
        """Add appended records that had their offsets already.

        ``next_offsets``: of the queues of ``batches``, from ``QueueOffsets.check_follow``.
        """
        last = batches.last
        if last is None:
            return
        self.units.extend(batches.units)
        self.keys.extend(batches.keys, 0, len(batches.keys))
        self.offsets.follow(batches.units, next_offsets)
        self.last = Appended(last.phy_offset, last.size, last.store_timestamp)

    def snapshot(self) -> Appends:
        """Return the waiting units and keys, to which appends may still add. ``reset`` drops them.

        Raises:
            StoreFailedError: an append was interrupted.
        """
        self.appending.check()
        return Appends(self.units, self.keys, self.last)

    def reset(self) -> None:
        """Start with empty batches: the caller has taken the current ones."""
        self.units, self.keys = UnitBatch(), IndexBatch()


def oldest_timestamp(units: UnitBatch) -> int:
    """Return the store time, ms, of the first of ``units``, 0 without units."""
    return QUEUE_UNIT.unpack_from(memoryview(units.units)).store_timestamp if len(units) else 0
