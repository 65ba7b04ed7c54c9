"""Check the units of the queues; every unit is read once, in blocks, and none is kept.

Extension addresses are counted but not resolved, and units are not compared with their records;
``verify`` does that.
"""

from collections.abc import Iterator

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.migration.preflight.unit_totals import UnitTotals
from cqstore.store.queue.backends import MOVE_AS_PLAIN
from cqstore.store.queue.bulk import BulkBackend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import LogView
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import BlockStop

_BLOCK_UNITS = 65_536


class BatchQueues(QueueCheck):
    """Check for queues of 46-byte units, which cannot be moved."""

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues
        self._found = NameCount()

    def check(self, queue: UnitRange) -> None:
        """Check the queue type of the topic."""
        if self._queues.queue_type(queue.topic) is QueueType.BATCH:
            self._found.add(queue.name, messages=queue.units)

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield one finding with the batch queues, if there are any."""
        yield from self._found.finding(
            "batch-queues",
            Severity.REFUSE,
            "Topics have batch queues (queue.type=BatchCQ), which a broker cannot serve from "
            "RocksDB: consumers do not get all messages of inner batches, and with double write "
            f"it does not start. {MOVE_AS_PLAIN}.",
        )


class UnitCheck(QueueCheck):
    """Check for holes, units that point outside the log, and units that will be translated."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        log: LogView,
        target: BulkBackend,
        *,
        is_written: bool = False,
    ) -> None:
        """``is_written``: a process appends, so units may be newer than the end of ``log``."""
        self._queues = queues
        self._totals = UnitTotals(log.min_phy_offset(), log.max_phy_offset(), is_written=is_written)
        self._holes_refuse = target.needs_whole_queues

    def check(self, queue: UnitRange) -> None:
        """Read all units of one queue."""
        if self._queues.queue_type(queue.topic) is QueueType.BATCH:
            return
        units = self._queues.queue(queue.topic, queue.queue_id)
        at, missing, astray, addresses = queue.low, 0, 0, 0
        while at < queue.high:
            count = min(_BLOCK_UNITS, queue.high - at)
            block = units.read_units(at, count)
            rows = block.columns()
            astray += self._totals.outside(rows)
            addresses += self._totals.addresses(rows)
            at += block.count
            if block.stop is BlockStop.HOLE and block.hole is not None:
                missing += len(block.hole)
                at = block.hole.stop
            elif not block.count:  # it ends before its max offset
                missing += queue.high - at
                break
        self._totals.note(queue, missing, astray, addresses)
        self._count_blanks(queue)

    def _count_blanks(self, queue: UnitRange) -> None:
        """Count the pre-blank rows before the first unit of a queue."""
        if not self._queues.begins_with_blanks or queue.low <= 0:
            return
        per_file = self._queues.units_per_file
        start = queue.low - queue.low % per_file
        if queue.low == queue.high and start == queue.low:
            start -= per_file  # pre-blanks alone fill a whole file
        if start == queue.low:
            return
        block = self._queues.queue(queue.topic, queue.queue_id).read_units(start, 1)
        if block.stop is BlockStop.HOLE and block.hole is not None and not block.count:
            self._totals.note_blanks(queue, len(block.hole))

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield one finding per kind."""
        yield from self._totals.findings(holes_refuse=self._holes_refuse)
