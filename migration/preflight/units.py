"""Check the units of the queues; every unit is read once, in blocks, and none is kept.

Extension addresses are counted but not resolved, and units are not compared with their records;
``verify`` does that.
"""

from collections.abc import Iterator

import numpy as np

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.queue.backends import MOVE_AS_PLAIN
from cqstore.store.queue.bulk import BulkBackend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import LogView
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import EXT_ADDRESS_MAX, BlockStop, UnitBlock

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
        self._low_phy, self._high_phy = log.min_phy_offset(), log.max_phy_offset()
        self._is_written = is_written
        self._holes_refuse = target.needs_whole_queues
        self._holes, self._outside, self._ext, self._blanks = (NameCount() for _ in range(4))
        self._missing = self._astray = self._addresses = self._blank_units = 0

    def check(self, queue: UnitRange) -> None:
        """Read all units of one queue."""
        if self._queues.queue_type(queue.topic) is QueueType.BATCH:
            return
        units = self._queues.queue(queue.topic, queue.queue_id)
        at, missing, astray, addresses = queue.low, 0, 0, 0
        while at < queue.high:
            count = min(_BLOCK_UNITS, queue.high - at)
            block = units.read_units(at, count)
            misplaced, far = self._read(block)
            astray += misplaced
            addresses += far
            at += block.count
            if block.stop is BlockStop.HOLE and block.hole is not None:
                missing += len(block.hole)
                at = block.hole.stop
            elif not block.count:  # it ends before its max offset
                missing += queue.high - at
                break
        self._note(queue, missing, astray, addresses)
        self._count_blanks(queue)

    def _read(self, block: UnitBlock) -> tuple[int, int]:
        """Return how many units of a block point outside the log, and have extension addresses."""
        rows = block.columns()
        phy = rows["phy_offset"].astype(np.int64)
        # Compared this way round no sum can overflow, whatever the bytes say.
        room = self._high_phy - rows["size"].astype(np.int64)
        outside = (phy < self._low_phy) | (phy > room)
        if self._is_written:
            outside &= phy < self._high_phy
        misplaced = np.count_nonzero(outside)
        return int(misplaced), int(np.count_nonzero(rows["tags_code"] <= EXT_ADDRESS_MAX))

    def _note(self, queue: UnitRange, missing: int, astray: int, addresses: int) -> None:
        """Add the counts of one queue to the findings."""
        self._missing += missing
        self._astray += astray
        self._addresses += addresses
        if missing:
            self._holes.add(queue.name, missingUnits=missing, min=queue.low, max=queue.high)
        if astray:
            self._outside.add(queue.name, units=astray, min=queue.low, max=queue.high)
        if addresses:
            self._ext.add(queue.name, units=addresses)

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
            self._blank_units += len(block.hole)
            self._blanks.add(queue.name, units=len(block.hole))

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield one finding per kind."""
        yield from self._holes.finding(
            "holes",
            Severity.REFUSE if self._holes_refuse else Severity.WARN,
            "Units are missing inside queues; with RocksDB, a broker resets a consumer that "
            "reaches such a hole to offset 0: rebuild the queues first (cqstore rebuild DIR "
            "--topic T).",
            missingUnits=self._missing,
        )
        yield from self._outside.finding(
            "units-outside-log",
            Severity.REFUSE,
            "Units point outside the commit log: run cqstore recover or cqstore rebuild first.",
            units=self._astray,
            logMin=self._low_phy,
            logMax=self._high_phy,
        )
        yield from self._ext.finding(
            "extension-addresses",
            Severity.INFO,
            "Tags codes of units are addresses in extension files; the move replaces them with the "
            "tags codes that are stored there.",
            units=self._addresses,
        )
        yield from self._blanks.finding(
            "pre-blank-units",
            Severity.INFO,
            "The first files of queues begin with pre-blank units, which are empty and skipped.",
            units=self._blank_units,
        )
