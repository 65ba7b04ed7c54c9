"""The comparison against a model: two dicts of units, compared one by one."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.verify.comparison import QueuePlace, RangeComparison, union
from migration.verify.log_heads import LogHeads
from migration.verify.queue_walk import Bounds
from migration.verify.ranges import cut_ranges
from migration.verify.report import Kind, Notes, Tally
from store.errors import CorruptionError
from store.queue.bulk import UNIT_ROWS, UnitRows, UnitRun, UnitSource, key_order
from store.queue.units import QueueKey
from store.record.record_layout import HEAD, MAGIC_V1, STORED

RECORD = 100
RECORDS = 40
TIME = 1_000
QUEUES = [QueueKey("b", 0), QueueKey("c", 0), QueueKey("aa", 0)]


class Unit(NamedTuple):
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class Held(NamedTuple):
    units: dict[int, Unit]
    next_offset: int


Side = dict[QueueKey, Held]


class ModelSource:
    """A ``UnitSource`` over a dict; its runs are as short as they may be."""

    def __init__(self, side: Side, *, has_timestamps: bool, run: int) -> None:
        self.has_timestamps = has_timestamps
        self._side = side
        self._run = run
        self.closed = 0

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        for queue in sorted(self._side, key=key_order):
            if after is not None and key_order(queue) <= key_order(after):
                continue
            if up_to is None or key_order(queue) <= key_order(up_to):
                yield queue

    def next_offset(self, queue: QueueKey) -> int:
        return self._side[queue].next_offset

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        raise NotImplementedError

    def behind(self, queue: QueueKey) -> UnitRun | None:
        return None

    def runs(self, queue: QueueKey, most_units: int) -> Iterator[UnitRun]:
        units = self._side[queue].units
        waiting: list[int] = []
        for offset in [*sorted(units), -1]:
            broken = waiting and (offset != waiting[-1] + 1 or len(waiting) == self._run)
            if broken:
                rows = np.zeros(len(waiting), UNIT_ROWS)
                for row, at in enumerate(waiting):
                    values = units[at]
                    rows[row] = values if self.has_timestamps else (*values[:3], -1)
                yield UnitRun(waiting[0], rows)
                waiting = []
            waiting.append(offset)
        assert len(waiting) == 1
        assert most_units > 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogHeads:
    """Heads of records in two files; record *n* was stored at 1000 + n."""
    folder = tmp_path_factory.mktemp("log")
    for first in (0, RECORDS // 2):
        data = bytearray()
        for number in range(first, first + RECORDS // 2):
            record = bytearray(RECORD)
            HEAD.struct.pack_into(record, 0, RECORD, MAGIC_V1, 0, 0, 0, 0, number * RECORD, 0, 0)
            STORED.struct.pack_into(record, HEAD.size + 8, TIME + number)
            data += record
        (folder / f"{first * RECORD:020d}").write_bytes(data)
    return LogHeads([folder])


def right_unit(number: int) -> Unit:
    return Unit(number * RECORD, RECORD, number % 3, TIME + number)


@st.composite
def held(draw: st.DrawFn) -> tuple[Held | None, Held | None]:
    """Draw one queue as both sides have it; the target is damaged now and then."""
    first = draw(st.integers(0, 3))
    records = draw(st.lists(st.integers(0, RECORDS - 1), unique=True, max_size=12).map(sorted))
    source = {first + at: right_unit(number) for at, number in enumerate(records)}
    end = first + len(records)
    target = dict(source)
    for offset in draw(st.sets(st.integers(first, first + 12), max_size=6)):
        target.pop(offset, None)
    for offset in draw(st.sets(st.integers(0, first + 15), max_size=3)):
        target[offset] = right_unit(draw(st.integers(0, RECORDS - 1)))
    for offset in list(target):
        field = draw(st.sampled_from([None, None, None, None, *range(4)]))
        if field is not None:
            values = list(target[offset])
            values[field] += 1
            target[offset] = Unit(*values)
    for offset in draw(st.sets(st.integers(first, first + 12), max_size=1)):
        source.pop(offset, None)
    target_end = draw(st.sampled_from([end, end, end, end + 1, max(end - 2, 0)]))
    source_end = draw(st.sampled_from([end, end, end, max(end - 2, 0)]))
    sides = draw(st.sampled_from([3, 3, 3, 3, 1, 2]))
    return (
        Held(source, source_end) if sides & 1 else None,
        Held(target, target_end) if sides & 2 else None,
    )


def expected(source: Held, target: Held, bounds: Bounds, *, file_target: bool) -> Counter[str]:
    """Compare two dicts unit by unit."""
    found: Counter[str] = Counter()
    live = [at for at in sorted(source.units) if source.units[at][0] >= bounds.min_phy_offset]
    reference = [at for at in live if at < source.next_offset]
    begin = reference[0] if reference else 1 << 60
    both = [at for at in reference if at in target.units]
    absent = [at for at in reference if at not in target.units]
    later = [
        at for at in absent
        if (not both or at > both[-1])
        and source.units[at].phy_offset + source.units[at].size > bounds.complete_to
    ]  # fmt: skip
    for at in absent:
        if at in later:
            continue
        kind = "hole" if both and both[0] < at < both[-1] else "missing_tail"
        found["missing_head" if not both or at < both[0] else kind] += 1
    for at, unit in target.units.items():
        expired = at < begin and unit.phy_offset < bounds.min_phy_offset
        known = at in source.units and at < source.next_offset
        if not known and not expired:
            found["extra"] += 1
    for at in both:
        odd = different_fields(source.units[at], target.units[at], file_target=file_target)
        found["different"] += bool(odd)
        found.update(odd)
    end = later[0] if later else source.next_offset
    found["next_offset"] += target.next_offset != end
    return +found


def different_fields(left: Unit, right: Unit, *, file_target: bool) -> list[str]:
    """A target on files has no times of its own: those of the records count."""
    count = 3 if file_target else 4
    return [name for name, a, b in zip(Unit._fields[:count], left, right, strict=False) if a != b]


NOTHING = Held({}, 0)


def expected_notes(source: Held, target: Held, bounds: Bounds, *, file_target: bool) -> Notes:
    """Say what is no difference, unit by unit; all records in the log name queue offset 0."""
    inside = {at: unit for at, unit in source.units.items() if at < source.next_offset}
    live = [at for at, unit in inside.items() if unit.phy_offset >= bounds.min_phy_offset]
    begin = min(live, default=1 << 60)
    met = max((at for at in live if at in target.units), default=-1)
    gone = [
        at for at, unit in target.units.items()
        if at < begin and (at in inside or unit.phy_offset < bounds.min_phy_offset)
    ]  # fmt: skip
    equal = [
        at for at in live if at in target.units
        and not different_fields(inside[at], target.units[at], file_target=file_target)
    ]  # fmt: skip
    return Notes(
        later=sum(at > met and ends_behind(inside[at], bounds) for at in live),
        expired_source=len(inside) - len(live), expired_target=len(gone),
        unreachable=len(source.units) - len(inside), shifted=sum(at != 0 for at in equal),
        empty=not (inside or target.units or source.next_offset or target.next_offset),
    )  # fmt: skip


def ends_behind(unit: Unit, bounds: Bounds) -> bool:
    return unit.phy_offset + unit.size > bounds.complete_to


def within_end(one: Held) -> Held:
    units = {at: unit for at, unit in one.units.items() if at < one.next_offset}
    return Held(units, one.next_offset)


def compare(
    source: Side, target: Side, log: LogHeads, bounds: Bounds, run: int, times: int
) -> Tally:
    one = ModelSource(source, has_timestamps=bool(times & 1), run=run)
    other = ModelSource(target, has_timestamps=bool(times & 2), run=run + 1)
    return RangeComparison(one, other, log, bounds).run((None, None))


@given(
    queues=st.tuples(held(), held(), held()),
    bounds=st.builds(
        Bounds, st.integers(0, 12).map(RECORD.__mul__), st.integers(25, 50).map(RECORD.__mul__)
    ),
    run=st.integers(1, 6),
    times=st.sampled_from([1, 2, 3]),
)
def test_every_count_is_that_of_the_model(
    log: LogHeads,
    queues: tuple[tuple[Held | None, Held | None], ...],
    bounds: Bounds,
    run: int,
    times: int,
) -> None:
    source = {key: one for key, (one, _) in zip(QUEUES, queues, strict=True) if one}
    target = {key: one for key, (_, one) in zip(QUEUES, queues, strict=True) if one}
    tally = compare(source, target, log, bounds, run, times)
    model: Counter[str] = Counter()
    for key in source.keys() & target.keys():
        model += expected(source[key], target[key], bounds, file_target=not times & 2)
    counted = {kind.value: count for kind, count in tally.counts.items()}
    for alone in (Kind.ONLY_SOURCE, Kind.ONLY_TARGET):
        counted.pop(alone.value, None)
    assert Counter(counted) + Counter(tally.fields) == model
    if not tally.counts and not tally.notes.later:
        assert tally.source == tally.target
    notes: Counter[str] = Counter()
    for key in source.keys() | target.keys():
        sides = source.get(key, NOTHING), target.get(key, NOTHING)
        notes.update(expected_notes(*sides, bounds, file_target=not times & 2).model_dump())
    assert tally.notes.model_dump() == notes
    assert tally.queues == len(source.keys() | target.keys()) - notes["empty"]
    reached = [
        unit for held in source.values() for at, unit in held.units.items() if at < held.next_offset
    ]
    assert tally.source.units == len(reached) - notes["expired_source"] - notes["later"]
    assert tally.source.bytes == tally.source.units * RECORD
    every = [unit for held in target.values() for unit in held.units.values()]
    assert tally.target.units == len(every) - notes["expired_target"]
    listed = sum(finding.units for queue in tally.listed for finding in queue.findings)
    lists = {k: v for k, v in model.items() if k not in {"different", "next_offset"}}
    assert listed == sum(lists.values())


@given(queues=st.tuples(held(), held(), held()), run=st.integers(1, 6))
def test_a_queue_of_one_side_alone_is_seen_from_either(
    log: LogHeads, queues: tuple[tuple[Held | None, Held | None], ...], run: int
) -> None:
    bounds = Bounds(0, 1 << 60)
    source = {key: within_end(one) for key, (one, _) in zip(QUEUES, queues, strict=True) if one}
    there = compare(source, {}, log, bounds, run, 3)
    back = compare({}, source, log, bounds, run, 3)
    number = sum(bool(one.units or one.next_offset) for one in source.values())
    assert there.counts.get(Kind.ONLY_SOURCE, 0) == back.counts.get(Kind.ONLY_TARGET, 0) == number
    topics = {key.topic for key, one in source.items() if one.units or one.next_offset}
    assert there.topics_only_source == back.topics_only_target == len(topics)
    assert there.source == back.target
    assert there.source.units == sum(len(one.units) for one in source.values())


def test_the_union_is_in_key_order_and_says_which_side_has_a_queue() -> None:
    one = ModelSource(dict.fromkeys(QUEUES[:2], NOTHING), has_timestamps=True, run=1)
    other = ModelSource(dict.fromkeys(QUEUES[1:], NOTHING), has_timestamps=True, run=1)
    assert list(union(one, other, (None, None))) == [
        (QueueKey("b", 0), 1), (QueueKey("c", 0), 3), (QueueKey("aa", 0), 2)
    ]  # fmt: skip


def test_the_checksum_does_not_depend_on_order_but_on_every_field(log: LogHeads) -> None:
    held_units = {at: right_unit(at) for at in range(8)}
    base = compare({QUEUES[0]: Held(held_units, 8)}, {}, log, Bounds(0, 1 << 60), 3, 3).source
    seen = {base.checksum}
    for field in range(4):
        values = list(held_units[4])
        values[field] += 1
        side = {QUEUES[0]: Held({**held_units, 4: Unit(*values)}, 8)}
        seen.add(compare(side, {}, log, Bounds(0, 1 << 60), 3, 3).source.checksum)
    other_queue = compare({QUEUES[1]: Held(held_units, 8)}, {}, log, Bounds(0, 1 << 60), 3, 3)
    seen.add(other_queue.source.checksum)
    swapped = {**held_units, 4: held_units[5], 5: held_units[4]}
    side = {QUEUES[0]: Held(swapped, 8)}
    seen.add(compare(side, {}, log, Bounds(0, 1 << 60), 3, 3).source.checksum)
    assert len(seen) == 7
    other_runs = compare({QUEUES[0]: Held(held_units, 8)}, {}, log, Bounds(0, 1 << 60), 1, 3)
    assert other_runs.source == base


def test_neighbours_are_one_finding_however_they_were_read(log: LogHeads) -> None:
    units = {at: right_unit(at) for at in range(20)}
    source = {QUEUES[0]: Held({at: units[at] for at in range(10)}, 20)}
    target = {QUEUES[0]: Held(units, 20)}
    tally = compare(source, target, log, Bounds(0, 1 << 60), 2, 3)
    (finding,) = tally.listed[0].findings
    assert (finding.kind, finding.first, finding.last, finding.units) == (Kind.EXTRA, 10, 19, 10)


# ---- ranges


class _Unreadable(ModelSource):
    """A side of which the ends of some queues cannot be read."""

    def next_offset(self, queue: QueueKey) -> int:
        end = self._side.get(queue, NOTHING).next_offset
        if end < 0:
            raise CorruptionError("no end can be read")
        return end


class _Place(QueuePlace):
    def __init__(self, side: UnitSource) -> None:
        super().__init__("model", Path(), (), {})
        object.__setattr__(self, "_side", side)

    def open(self) -> UnitSource:
        side: UnitSource = vars(self)["_side"]
        return side


ENDS = st.dictionaries(
    st.builds(QueueKey, st.sampled_from(["a", "b", "c", "d", "bb"]), st.integers(0, 3)),
    st.integers(-1, 9),
)


@given(sides=st.tuples(ENDS, ENDS), most=st.tuples(st.integers(1, 12), st.integers(1, 6)))
def test_ranges_end_with_the_topic_that_fills_them(
    sides: tuple[dict[QueueKey, int], dict[QueueKey, int]], most: tuple[int, int]
) -> None:
    """The sides keep ends; -1 is one that cannot be read. The second one keeps none of files."""
    topics: dict[str, list[QueueKey]] = {}
    for queue in sorted(sides[0].keys() | sides[1].keys(), key=key_order):
        topics.setdefault(queue.topic, []).append(queue)
    for both in (True, False):
        opened = [
            _Unreadable(
                {queue: Held({}, end) for queue, end in side.items()}, has_timestamps=told, run=1
            )
            for side, told in zip(sides, (True, both), strict=True)
        ]
        wanted, units, queues = [], 0, 0
        told = sides if both else sides[:1]
        for held in topics.values():
            if units >= most[0] or queues >= most[1]:
                wanted.append(held[0])
                units = queues = 0
            queues += len(held)
            units += sum(max(0, *(side.get(queue, 0) for side in told)) for queue in held)
        ranges = cut_ranges(*map(_Place, opened), most_units=most[0], most_queues=most[1])
        assert [after for after, _ in ranges] == [None, *(last for _, last in ranges[:-1])]
        assert ranges[-1][1] is None
        found = [[queue for queue, _ in union(opened[0], opened[1], one)] for one in ranges]
        assert sum(map(len, found)) == sum(map(len, topics.values()))
        assert [held[0] for held in found[1:]] == wanted
        assert [side.closed for side in opened] == [1, 1]
