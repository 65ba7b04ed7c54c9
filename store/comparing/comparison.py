"""Comparison of the queues of two sides with Python and numpy, in the calling process."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from cqstore.store.comparing.alignment import Stretch, align
from cqstore.store.comparing.blocks import BLOCK_UNITS, Blocks, DeepCheck, WholePair
from cqstore.store.comparing.comparison_findings import ComparisonFindings
from cqstore.store.comparing.listed_queues import BOTH, SOURCE, TARGET, Sided
from cqstore.store.comparing.log_heads import RecordHeads
from cqstore.store.comparing.queue_findings import QueueFindings, sums
from cqstore.store.comparing.queue_walk import Bounds, QueueWalk
from cqstore.store.comparing.sums import Sum
from cqstore.store.comparing.tally import MAX_QUEUES, ComparisonNotes, DifferenceKind, add_counts
from cqstore.store.comparing.verified_queues import QueueFacts
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.bulk import (
    HasWholeQueues,
    UnitRun,
    UnitSource,
    WholeQueue,
)
from cqstore.store.queue.units import QueueKey

RUN_UNITS = 1 << 14
"""Units that are read from a side at once."""
_BLOCK_QUEUES = 4096
_ONLY = {SOURCE: DifferenceKind.ONLY_SOURCE, TARGET: DifferenceKind.ONLY_TARGET}


_Lock = AbstractContextManager[object]
Locks = tuple[_Lock, _Lock, _Lock]
NO_LOCKS: Locks = (nullcontext(), nullcontext(), nullcontext())


def _no_facts(queue: QueueKey) -> bytes | None:
    _ = queue
    return None


@dataclass(slots=True)
class Comparison:
    """Compares queues of two sides. One thread."""

    source: UnitSource
    target: UnitSource
    log: RecordHeads
    bounds: Bounds
    deep: DeepCheck | None = None
    agreed: bool = True
    """Also compare equal units with the log, and check for rows after the ends of queues."""
    locks: Locks = NO_LOCKS
    """Held while the ends of a queue are read, so that they are consistent during writes."""
    facts: QueueFacts | None = None
    """Collect the facts of queues that are equal."""
    found: ComparisonFindings = field(default_factory=ComparisonFindings)
    _blocks: Blocks = field(init=False)
    _facts_of: Callable[[QueueKey], bytes | None] = _no_facts
    _whole_source: Callable[[QueueKey], WholeQueue | None] | None = None
    _whole_target: Callable[[QueueKey], WholeQueue | None] | None = None
    _ended: list[QueueWalk | WholePair] = field(default_factory=list)
    _pair_units: int = 0
    _notes: ComparisonNotes = field(default_factory=ComparisonNotes)
    _sums: tuple[Sum, Sum] = field(default_factory=lambda: (Sum(), Sum()))
    _topic: str | None = None
    _topic_sides: int = 0
    _reading: str = "source"

    def __post_init__(self) -> None:
        self._blocks = Blocks(self.log, self.source, self.target, self.deep, agreed=self.agreed)
        if isinstance(self.source, HasWholeQueues):  # checked once, because it is slow
            self._facts_of, self._whole_source = self.source.facts_of, self.source.whole
        if isinstance(self.target, HasWholeQueues) and self.deep is None:
            self._whole_target = self.target.whole  # else the record of each unit is decoded

    def run(self, queues: Iterable[Sided]) -> ComparisonFindings:
        """Compare ``queues``, with the queues of a topic in a row; return the findings.

        Raises:
            StoreIOError: a read from disk failed.
            CorruptionError: a side's list of queues cannot be read.
        """
        for queue, sides in queues:
            self._queue(queue, sides)
        self._compare()
        self._end_topic()
        tally = self.found.tally
        self._notes.shifted = self._blocks.shifted
        tally.notes, tally.source, tally.target = self._notes, *map(sums, self._sums)
        return self.found

    def _queue(self, queue: QueueKey, sides: int) -> None:
        """Compare one queue; ``sides`` are the sides that list it."""
        if queue.topic != self._topic:
            self._end_topic()
            self._topic = queue.topic
        # Computed before the queue is read: later changes give another digest.
        facts = None
        if self.facts is not None and sides == BOTH:
            facts = self.facts.digest(queue, self._facts_of(queue))
        if sides == BOTH and (pair := self._pair(queue)) is not None:
            if facts is not None:
                self.found.facts.append(facts)
            self._topic_sides |= BOTH
            self._end(pair)
            return
        found = QueueFindings(queue)
        walk = QueueWalk(found, self.bounds, (0, 0), once=_ONLY.get(sides))
        try:
            # The locks themselves: an interrupted context manager in Python can leave them held
            # (decision 18).
            with self.locks[0], self.locks[1], self.locks[2]:
                ends = self._ends(queue, sides)
            sides = sides or (SOURCE * bool(ends[0]) | TARGET * bool(ends[1]))
            walk = QueueWalk(found, self.bounds, ends, once=_ONLY.get(sides))
            self._walk(walk, queue, sides)
        except CorruptionError as exc:
            found.of_queue(DifferenceKind.UNREADABLE, **{self._reading: str(exc)})
        else:
            walk.end()
            if self.agreed:
                self._check_beyond_end(found, queue, sides)
            if facts is not None and not walk.later and not self.source.is_open_ended(queue):
                self.found.facts.append(facts)
        self._count_topic(walk, sides)
        self._end(walk)

    def _pair(self, queue: QueueKey) -> WholePair | None:
        """Return all units of a queue, if it is short, live and equally long on both sides."""
        if self._whole_source is None or self._whole_target is None:
            return None
        target = self._whole_target(queue)
        if target is None or (source := self._whole_source(queue)) is None:
            return None
        if (
            source.queue_offset != target.queue_offset
            or len(source.rows) != len(target.rows)
            or source.first_phy < self.bounds.min_phy_offset
        ):
            return None
        return WholePair(queue, source.queue_offset, source.rows, target.rows)

    def _end(self, ended: QueueWalk | WholePair) -> None:
        """Collect a queue that is read, and compare the collected units if there are many."""
        self._ended.append(ended)
        if isinstance(ended, WholePair):
            self._pair_units += ended.units
        if len(self._ended) >= _BLOCK_QUEUES or self._pair_units >= BLOCK_UNITS:
            self._compare()

    def _check_beyond_end(self, found: QueueFindings, queue: QueueKey, sides: int) -> None:
        """Record rows after a queue's end, invisible to readers; in the target they differ."""
        if sides & SOURCE and (behind := self.source.behind(queue)) is not None:
            self._notes.behind_end += len(behind.rows)
        if sides & TARGET and (behind := self.target.behind(queue)) is not None:
            first, count = behind.queue_offset, len(behind.rows)
            found.count(DifferenceKind.BEHIND_END, count)
            found.add(
                DifferenceKind.BEHIND_END, first, first + count - 1, units=count,
                field_name="phy_offset", target=int(behind.rows["phy_offset"][0]),
            )  # fmt: skip

    def _ends(self, queue: QueueKey, sides: int) -> tuple[int, int]:
        self._reading = "source"
        source = self.source.next_offset(queue) if sides != TARGET else 0
        self._reading = "target"
        return source, self.target.next_offset(queue) if sides != SOURCE else 0

    def _walk(self, walk: QueueWalk, queue: QueueKey, sides: int) -> None:
        """Iterate over a queue on both sides; units that both have are compared in blocks."""
        source = self._runs("source", self.source, queue) if sides & SOURCE else iter(())
        target = self._runs("target", self.target, queue) if sides & TARGET else iter(())
        for stretch in align(source, target):
            self._take(walk, stretch)

    def _take(self, walk: QueueWalk, stretch: Stretch) -> None:
        """Pass units to the walk over their queue; those that both sides have are compared."""
        both = walk.advance(stretch)
        if both is None or both.source is None or both.target is None:
            return
        if self._blocks.add(walk.found, both.queue_offset, both.source, both.target):
            self._blocks.compare()

    def _runs(self, side: str, units: UnitSource, queue: QueueKey) -> Iterator[UnitRun]:
        """Read a queue; small runs release the buffer into which they were read."""
        runs = units.runs(queue, RUN_UNITS)
        while True:
            self._reading = side
            run = next(runs, None)
            if run is None:
                return
            small = len(run.rows) < RUN_UNITS // 2
            yield UnitRun(run.queue_offset, run.rows.copy()) if small else run

    # ---- totals

    def _count_topic(self, walk: QueueWalk, sides: int) -> None:
        """Record which sides have the topic; queues without units do not count."""
        if walk.is_empty:
            return
        differs = walk.found.counts.keys() & {
            DifferenceKind.ONLY_SOURCE,
            DifferenceKind.ONLY_TARGET,
        }
        self._topic_sides |= sides if differs else BOTH

    def _end_topic(self) -> None:
        self.found.tally.topics_only_source += self._topic_sides == SOURCE
        self.found.tally.topics_only_target += self._topic_sides == TARGET
        self._topic_sides = 0

    def _compare(self) -> None:
        """Compare the collected units; then the results of all ended queues are complete."""
        pairs = [each for each in self._ended if isinstance(each, WholePair)]
        both = self._blocks.sum_if_equal(pairs) if pairs else None
        if both is not None:
            for total in self._sums:
                total.add(both.units, both.bytes, both.checksum)
            self.found.tally.queues += len(pairs)
            walks = [each for each in self._ended if isinstance(each, QueueWalk)]
        else:  # in the order of the queues, since only the first ones that differ are listed
            walks = [self._walk_pair(e) if isinstance(e, WholePair) else e for e in self._ended]
        self._blocks.compare()
        for walk in walks:
            self._count(walk)
        self._ended.clear()
        self._pair_units = 0

    def _walk_pair(self, pair: WholePair) -> QueueWalk:
        """Return the walk over a pair, whose units are still to be compared."""
        end = pair.queue_offset + pair.units
        walk = QueueWalk(QueueFindings(pair.queue), self.bounds, (end, end), once=None)
        self._take(walk, pair.stretch())
        walk.end()
        return walk

    def _count(self, walk: QueueWalk) -> None:
        """Add the results of a queue to the totals."""
        tally, notes, found = self.found.tally, self._notes, walk.found
        if walk.later or walk.unreachable or any(walk.expired):  # setting a field is slow
            notes.later += walk.later
            notes.expired_source += walk.expired[0]
            notes.expired_target += walk.expired[1]
            notes.unreachable += walk.unreachable
        for total, one in zip(self._sums, (found.source, found.target), strict=True):
            total.add(one.units, one.bytes, one.checksum)
        if walk.is_empty and not found.counts:
            notes.empty += 1
            return
        tally.queues += 1
        if not found.counts:
            return
        tally.differing += 1
        tally.counts = add_counts(tally.counts, found.counts)
        tally.fields = add_counts(tally.fields, found.fields)
        if DifferenceKind.ONLY_SOURCE in found.counts:
            tally.units_only_source += found.source.units
        if DifferenceKind.ONLY_TARGET in found.counts:
            tally.units_only_target += found.target.units
        self.found.count_lacking(found)
        if len(tally.listed) < MAX_QUEUES:
            tally.listed.append(found.report())
