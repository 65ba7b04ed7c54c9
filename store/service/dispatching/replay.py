"""Replay: from records of the log that were scanned to the queues and the index.

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
"""Units that a replay collects before it hands them on: large, so that queues get runs."""
MAX_REPLAY_UNITS = 1 << 20
"""As many where there are many queues; about 250 bytes of memory a unit on RocksDB."""

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
        """Have ``put`` call dispatchers as the queues are fed, by a scan from ``start`` on."""
        if self._dispatchers is not None:
            self._dispatchers.begin(start, queues_from)

    def run(
        self,
        blocks: Iterable[RecordScan],
        queues_from: int,
        index_from: int | None,
        progress: Progress = noop,
    ) -> "ReplayResult":
        """Dispatch scanned records, to the queues those that start at or behind ``queues_from``.

        At or behind, not behind: RocketMQ's ``>`` loses a record. To the index
        go those from ``index_from`` on, none if it is ``None``. Whatever was read before a
        ``CorruptionError`` of ``blocks`` is stored; the error is returned, not raised, for it is
        how the scan of a torn log ends. ``progress`` is told phy offsets, one a batch and the last.
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
            if storing:  # the queues' fault, a gap for one, is not the end of the log
                raise
            result.fault = exc
        if batch.end_phy_offset or len(keys):
            result.add(batch, self._put(batch, keys))
        if result.last is not None:
            progress(result.last.phy_offset)
        return result


class ReplayResult(RecordCount):
    """What a replay met and did."""

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
        """Take in the result of a replay that went on where this one stopped."""
        self.records += following.records
        self.units += following.units
        self.last = following.last or self.last
        self.restarts += following.restarts
        self.fault = following.fault
