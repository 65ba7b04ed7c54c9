"""RecordBatcher: from records that have their places to the batches of their units and keys.

Records come so from a scan of the own log, and from another store's.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``MultiDispatchUtils``.
"""

import sys
from collections.abc import Iterable, Iterator

from store.index.index_batch import TAGS_PREFIX, IndexBatch
from store.queue.units import UnitBatch
from store.record.message import SCHEDULE_TOPIC
from store.record.properties import dispatch_properties
from store.record.scan import Scan, ScannedRecord
from store.service.dispatching import _replay
from store.service.dispatching.record_keys import RecordKeys
from store.service.dispatching.record_units import RecordUnits


class RecordCount:
    """How many records were taken into batches, and the outer ones."""

    def __init__(self) -> None:
        self.records = 0
        self.first_phy_offset = -1
        self.last: ScannedRecord | None = None

    def note_several(
        self, first: ScannedRecord | None, last: ScannedRecord | None, count: int
    ) -> None:
        """Count scanned records."""
        if first is not None and not self.records:
            self.first_phy_offset = first.phy_offset
        self.records += count
        self.last = last or self.last


class RecordBatcher:
    """Adds scanned records to batches under one configuration. One thread.

    Compiled code takes what is plain; ``RecordUnits`` and ``RecordKeys`` say what of the others is
    dispatched.
    """

    def __init__(self, units: RecordUnits, keys: RecordKeys) -> None:
        self._units = units
        self._keys = keys
        self._fill = _replay.ReplayBatcher(
            note=self._note, deleted=units.deleted, scheduled=SCHEDULE_TOPIC,
            tags_prefix=TAGS_PREFIX, keys_wanted=keys.wanted, tags_wanted=keys.tags,
        ).fill  # fmt: skip

    def fill(
        self,
        blocks: Iterator[Scan | ScannedRecord],
        count: RecordCount,
        units: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
        full_at: int,
    ) -> bool:
        """Add the records of ``blocks`` until ``full_at`` units wait; return whether there are.

        Units are those of records from ``queues_from`` on, keys those from ``index_from`` on, none
        if it is ``None``. An item may be a record itself. A block is left where the batch was full,
        and gone on with in the next call for these ``blocks``.

        Raises:
            CorruptionError: as ``blocks`` raises it; what was read before is in the batches.
        """
        return self._fill(blocks, count, units, keys, queues_from, index_from, full_at)

    def batches_of(self, blocks: Iterable[Scan]) -> "RecordBatches":
        """Return the batches of all records of ``blocks``.

        Raises:
            CorruptionError: as ``blocks`` raises it.
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
        phy_offset = record.phy_offset
        properties = dispatch_properties(record.properties)
        if phy_offset >= queues_from:
            self._units.add_scanned(units.add, record, properties)
            units.end_phy_offset = phy_offset + record.size
        if index_from is not None and self._keys.wanted and phy_offset >= index_from:
            self._keys.add_scanned(keys, record, properties)


class RecordBatches(RecordCount):
    """Records that follow each other, as their units and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.units = UnitBatch()
        self.keys = IndexBatch()
