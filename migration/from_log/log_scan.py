"""LogScan: read the units of a range of the log, in batches."""

from collections.abc import Iterator

from cqstore.store.errors import CorruptionError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.record_batcher import RecordBatcher, RecordCount
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.recovering.find_log_end import whole_records

BATCH_UNITS = 1 << 20
"""Units per batch: 40 MB."""


class LogScan(RecordCount):
    """Scanner of a log under one configuration; counts the valid records. Not thread-safe."""

    def __init__(
        self, log: CommitLog, units: RecordUnits, rules: ScanRules, *, whole_only: bool
    ) -> None:
        """``whole_only``: the log was not closed cleanly, see ``whole_records``."""
        super().__init__()
        self._log = log
        self._fill = RecordBatcher(units, RecordKeys(wanted=False, tags=False)).fill
        self._rules = rules
        self._whole_only = whole_only

    def scan(self, start: int, end: int) -> Iterator[UnitBatch]:
        """Yield the units of the records in [``start``, ``end``), which begin and end log files.

        Raises:
            CorruptionError: no valid record at its phy offset: the end of the log, or damage. All
                units before it have been yielded.
        """
        blocks = self._log.scan_blocks(start, end, self._rules)
        if self._whole_only:
            blocks = whole_records(self._log, blocks)
        more, fault = True, None
        while more:
            batch = UnitBatch()
            try:
                more = self._fill(blocks, self, batch, IndexBatch(), 0, None, BATCH_UNITS)
            except CorruptionError as exc:
                more, fault = False, exc
            if len(batch):
                yield batch
        if fault is not None:
            raise fault
