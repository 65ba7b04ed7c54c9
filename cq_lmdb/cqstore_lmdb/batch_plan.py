"""BatchPlan: turns a batch of units into changes of queues; nothing changes before it is complete.

A unit is new if its record is after that of the queue's last unit; other units are a replay, and
the queue has them already, because a commit writes whole batches in log order.
"""

from cqstore.store.errors import queue_gap
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore_lmdb.layout import NO_QUEUE, UNIT_BYTES, QueueEnds, queue_key
from cqstore_lmdb.memory import Changes, MemoryQueue, QueueView, Snapshot


class BatchPlan:
    """The changes of one batch."""

    def __init__(self, min_phy_offset: int) -> None:
        """``min_phy_offset``: start of the log."""
        self._min_phy_offset = min_phy_offset
        self.changes: Changes = {}
        self.new: dict[bytes, bytes] = {}
        """Units to add to those of a change."""
        self.restarts: list[QueueRestart] = []

    def plan(self, snapshot: Snapshot, batch: UnitBatch) -> None:
        """Plan all units of ``batch``.

        Raises:
            QueueGapError: a unit is beyond the end of a queue that has live units.
            IllegalMessageError: a key cannot contain a topic or queue id.
            CorruptionError: a queue offset is invalid.
        """
        runs = batch.runs()
        units, phys = runs.units.tobytes(), runs.phys.tolist()
        rows = zip(runs.queues, runs.first_offsets, runs.starts, runs.ends, strict=True)
        for queue, first, start, end in rows:
            key = queue_key(*queue)
            change = self.changes.get(key) or snapshot.change_of(key)
            ends = change.ends or NO_QUEUE
            begin = start
            while begin < end and phys[begin] <= ends.last_phy:
                begin += 1  # a replay
            if begin < end:
                added = units[begin * UNIT_BYTES : end * UNIT_BYTES]
                place = first + begin - start
                self._add(queue, key, change, place, added, (phys[begin], phys[end - 1]))

    def _add(
        self, queue: QueueKey, key: bytes, change: MemoryQueue, place: int, units: bytes,
        phys: tuple[int, int],
    ) -> None:  # fmt: skip
        """Plan new units from offset ``place`` on; ``phys`` are the first and last phy offset."""
        ends, pending = change.ends, self.new.pop(key, b"")
        stop = place + len(units) // UNIT_BYTES
        if ends is None or place > ends.next:
            if ends is not None:
                self._check_gap(queue, ends, place, phys[0])
            self.changes[key] = MemoryQueue(QueueEnds(place, stop, phys[1]), place, bytearray())
            self.new[key] = units
            return
        if place < ends.next:
            self.restarts.append(QueueRestart(queue, range(place, ends.next), phys[0]))
            change, pending = _cut(change, ends, place, pending), b""
        after = QueueEnds(min(ends.first, place), stop, phys[1])
        self.changes[key] = MemoryQueue(after, change.base, change.units)
        self.new[key] = pending + units

    def _check_gap(self, queue: QueueKey, ends: QueueEnds, place: int, phy_offset: int) -> None:
        """Allow a queue to continue after a gap only if all its units have expired."""
        if ends.last_phy >= self._min_phy_offset and ends.first < ends.next:
            raise queue_gap(queue, phy_offset, expected=ends.next, got=place)


def _cut(change: MemoryQueue, ends: QueueEnds, place: int, pending: bytes = b"") -> MemoryQueue:
    """Return a change without the units from ``place`` on, in memory of its own."""
    units = change.units[: (ends.next - change.base) * UNIT_BYTES - len(pending)] + pending
    base = min(change.base, place)
    return MemoryQueue(ends, base, units[: max(place - change.base, 0) * UNIT_BYTES])


def cut_queue(change: MemoryQueue, view: QueueView, phy_offset: int) -> MemoryQueue | None:
    """Return the change that drops the units from ``phy_offset`` on; ``None``: there are none."""
    ends = view.ends
    if ends.first == ends.next or ends.last_phy < phy_offset:
        return None
    place = view.first_in_log(phy_offset)
    last_phy = view.phy_offset(place - 1) if place > ends.first else NO_QUEUE.last_phy
    return _cut(change, ends, place)._replace(ends=QueueEnds(ends.first, place, last_phy))


def expire_queue(change: MemoryQueue, view: QueueView, phy_offset: int) -> MemoryQueue | None:
    """Return the change that drops the units before ``phy_offset``; ``None``: there are none."""
    ends = view.ends
    place = view.first_in_log(phy_offset)
    if place == ends.first:
        return None
    units, base = change.units, change.base
    if place > base:
        units = units[(place - base) * UNIT_BYTES : (ends.next - base) * UNIT_BYTES]
        base = place
    return MemoryQueue(ends._replace(first=place), base, units)
