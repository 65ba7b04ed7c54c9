"""RecordBatcher: adds records with offsets to batches of units and keys.

Such records come from a scan of the store's own log, or from another store's log.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``MultiDispatchUtils``.
"""

import sys
from collections.abc import Iterable

from cqstore.store.index.index_batch import TAGS_PREFIX, IndexBatch
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import SCHEDULE_TOPIC
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.record.scan import RecordScan, ScannedRecord
from cqstore.store.service.dispatching import _replay
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits


class RecordCount:
    """The number of records that were added to batches, with the first and the last one."""

    def __init__(self) -> None:
        self.records = 0
        self.first_phy_offset = -1
        self.last: ScannedRecord | None = None

    def note_several(
        self, first: ScannedRecord | None, last: ScannedRecord | None, count: int
    ) -> None:
        """Count ``count`` consecutive records, of which the first and the last are given."""
        if first is not None and not self.records:
            self.first_phy_offset = first.phy_offset
        self.records += count
        self.last = last or self.last


class RecordBatcher(_replay.ReplayBatcher):
    """Adds scanned records to batches under one configuration. One thread.

    Compiled code handles plain records (``fill``); ``RecordUnits`` and ``RecordKeys`` handle the
    others.
    """

    def __init__(self, units: RecordUnits, keys: RecordKeys) -> None:
        super().__init__(
            note=self._note, deleted=units.deleted, scheduled=SCHEDULE_TOPIC,
            tags_prefix=TAGS_PREFIX, keys_wanted=keys.wanted, tags_wanted=keys.tags,
        )  # fmt: skip
        self._units = units
        self._keys = keys

    def batches_of(self, blocks: Iterable[RecordScan]) -> "RecordBatches":
        """Return the batches of all records of ``blocks``.

        Raises:
            CorruptionError: raised by ``blocks``.
        """
        batches = RecordBatches()
        self.fill(iter(blocks), batches, batches.units, batches.keys, 0, 0, sys.maxsize)
        return batches

    def _note(
        self,
        record: ScannedRecord,
        units: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
    ) -> None:
        """Add the units and keys of a record, each from a phy offset on."""
        phy_offset = record.phy_offset
        properties = dispatch_properties(record.properties)
        if phy_offset >= queues_from:
            size = self._units.batch_size(record.topic, record.sys_flag, properties)
            if size:
                units.batch_sizes[phy_offset] = size
            self._units.add(units.add, record, properties)
            units.end_phy_offset = phy_offset + record.size
        if index_from is not None and self._keys.wanted and phy_offset >= index_from:
            self._keys.add_scanned(keys, record, properties)


class RecordBatches(RecordCount):
    """Consecutive records of the log, as units and keys to dispatch."""

    def __init__(self) -> None:
        super().__init__()
        self.units = UnitBatch()
        self.keys = IndexBatch()
