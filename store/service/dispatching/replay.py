"""Replay: dispatches scanned records of the log to the queues and the index.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``, ``MultiDispatchUtils``.
"""

from collections.abc import Callable, Iterable

from cqstore.store.errors import CorruptionError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.scan import RecordScan
from cqstore.store.service.dispatching.dispatch import SLICE_PER_QUEUE
from cqstore.store.service.dispatching.dispatcher_list import DispatcherList
from cqstore.store.service.dispatching.record_batcher import RecordBatcher, RecordCount
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits

REPLAY_UNITS = 1 << 18
"""Units that a replay collects before it stores them: many, so that queues get long runs."""
MAX_REPLAY_UNITS = 1 << 20
"""Limit of units if there are many queues; about 250 bytes of memory per unit on RocksDB."""

PutUnits = Callable[[UnitBatch, IndexBatch], list[QueueRestart]]
"""``Dispatcher.store``."""


class Replay:
    """Replays into the queues and the index of one store. One thread, without concurrent puts."""

    def __init__(
        self,
        put: PutUnits,
        units: RecordUnits,
        keys: RecordKeys,
        dispatchers: DispatcherList | None = None,
    ) -> None:
        self._put = put
        self._dispatchers = dispatchers
        self._batcher = RecordBatcher(units, keys)
        self._fill = self._batcher.fill

    def begin(self, start: int, queues_from: int) -> None:
        """Make ``put`` call dispatchers while queues are filled, by a scan from ``start`` on."""
        if self._dispatchers is not None:
            self._dispatchers.begin(start, queues_from)

    def run(
        self,
        blocks: Iterable[RecordScan],
        queues_from: int,
        index_from: int | None,
        progress: Progress = noop,
    ) -> "ReplayResult":
        """Dispatch scanned records; queues get those that start at or after ``queues_from``.

        At or after, not only after: RocketMQ's ``>`` loses a record. The index gets records from
        ``index_from`` on, none if it is ``None``. All records that were read before a
        ``CorruptionError`` of ``blocks`` are stored; the error is returned, not raised, because the
        scan of a torn log ends with it. ``progress`` is called with phy offsets, one per batch and
        the last one.
        """
        result, waiting = ReplayResult(), iter(blocks)
        batch, keys, full_at = UnitBatch(), IndexBatch(), REPLAY_UNITS
        storing = False
        try:
            while self._fill(waiting, result, batch, keys, queues_from, index_from, full_at):
                wanted = min(SLICE_PER_QUEUE * len(batch.queues), MAX_REPLAY_UNITS)
                if len(batch) < wanted:
                    full_at = wanted
                    continue
                storing = True
                result.add(batch, self._put(batch, keys))
                storing = False
                if result.last is not None:
                    progress(result.last.phy_offset)
                batch, keys, full_at = UnitBatch(), IndexBatch(), REPLAY_UNITS
        except CorruptionError as exc:
            if storing:  # an error of the queues, for example a gap, is not the log's end
                raise
            result.fault = exc
        if batch.end_phy_offset or len(keys):
            result.add(batch, self._put(batch, keys))
        if result.last is not None:
            progress(result.last.phy_offset)
        return result


class ReplayResult(RecordCount):
    """The result of a replay."""

    def __init__(self) -> None:
        super().__init__()
        self.units = 0
        self.restarts: list[QueueRestart] = []
        self.fault: CorruptionError | None = None

    def add(self, batch: UnitBatch, restarts: list[QueueRestart]) -> None:
        """Count one stored batch."""
        self.units += len(batch)
        self.restarts += restarts

    def join(self, following: "ReplayResult") -> None:
        """Add the result of a replay that continued where this one stopped."""
        self.records += following.records
        self.units += following.units
        self.last = following.last or self.last
        self.restarts += following.restarts
        self.fault = following.fault
