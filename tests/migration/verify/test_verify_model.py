"""The comparison against a model: two dicts of units, compared one by one."""

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.comparing.comparison import Comparison
from cqstore.store.comparing.listed_queues import union
from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.queue_walk import Bounds
from cqstore.store.comparing.ranges import cut_ranges
from cqstore.store.comparing.tally import (
    ComparedQueue,
    ComparisonNotes,
    ComparisonTally,
    DifferenceKind,
)
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.bulk import (
    UNIT_ROWS,
    UnitRows,
    UnitRun,
    UnitSource,
    WrittenEnd,
    key_order,
)
from cqstore.store.queue.queue_location import QueuePlace
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.record_layout import HEAD, MAGIC_V1, STORED

RECORD = 100
RECORDS = 40
TIME = 1_000
BEHIND = 7_777
QUEUES = [QueueKey("b", 0), QueueKey("b", 1), QueueKey("%LMQ%c", 0)]


class Unit(NamedTuple):
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int


class Held(NamedTuple):
    units: dict[int, Unit]
    next_offset: int
    behind: int = 0
    """Rows behind the end that RocketMQ would take for units."""


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
        held = self._side[queue]
        rows = np.zeros(held.behind, UNIT_ROWS)
        rows["phy_offset"] = np.arange(held.behind) + BEHIND
        return UnitRun(held.next_offset, rows) if held.behind else None

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
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
        assert max_units > 0

    def is_open_ended(self, queue: QueueKey) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogHeads:
    """Heads of records in two files, as ``said_of`` tells them."""
    folder = tmp_path_factory.mktemp("log")
    for first in (0, RECORDS // 2):
        data = bytearray()
        for number in range(first, first + RECORDS // 2):
            record = bytearray(RECORD)
            time, queue_id, at = heads_of(number)
            place = number * RECORD
            HEAD.struct.pack_into(record, 0, RECORD, MAGIC_V1, 0, queue_id, 0, at, place, 0, 0)
            STORED.struct.pack_into(record, HEAD.size + 8, time)
            data += record
        (folder / f"{first * RECORD:020d}").write_bytes(data)
    return LogHeads([folder])


def heads_of(number: int) -> tuple[int, int, int]:
    """Return store time, queue id and queue offset of a record of the log."""
    return TIME + number, number % 2, number // 2


def said_of(unit: Unit) -> tuple[int, int, int] | None:
    """Return what the log says of the record that a unit leads to."""
    number, beside = divmod(unit.phy_offset, RECORD)
    there = not beside and unit.size == RECORD and number < RECORDS
    return heads_of(number) if there else None


def right_unit(number: int) -> Unit:
    return Unit(number * RECORD, RECORD, number % 3, TIME + number)


@st.composite
def held(draw: st.DrawFn) -> tuple[Held | None, Held | None]:
    """Draw one queue as both sides have it; the target is damaged now and then."""
    first = draw(st.integers(0, 3))
    records = draw(st.lists(st.integers(0, RECORDS + 2), unique=True, max_size=12).map(sorted))
    source = {first + at: right_unit(number) for at, number in enumerate(records)}
    for offset in draw(st.sets(st.integers(first, first + 12), max_size=1)) & source.keys():
        source[offset] = source[offset]._replace(store_timestamp=5)
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
    behind = st.sampled_from([0, 0, 0, 1, 3])
    sides = draw(st.sampled_from([3, 3, 3, 3, 1, 2]))
    return (
        Held(source, source_end, draw(behind)) if sides & 1 else None,
        Held(target, target_end, draw(behind)) if sides & 2 else None,
    )


Value = int | str | None
Shown = tuple[Value, Value]
"""What a finding shows of source and target."""
_NOT_SHOWN: Shown = None, None


class Expected(dict[tuple[str, str | None], dict[int | None, Shown]]):
    """By kind and field: what is shown of each unit, or under ``None`` of the queue."""

    def note(
        self, kind: str, at: int | None, shown: Shown = _NOT_SHOWN, name: str | None = None
    ) -> None:
        self.setdefault((kind, name), {})[at] = shown


def expected(
    queue: QueueKey, source: Held | None, target: Held | None, bounds: Bounds, times: int
) -> Expected:
    """Compare two dicts unit by unit."""
    found = Expected()
    for number in range(target.behind if target else 0):
        assert target is not None
        shown = (None, BEHIND + number)
        found.note("behind_end", target.next_offset + number, shown, "phy_offset")
    if source is None or target is None:
        alone = _alone(source, target, bounds)
        if alone is not None:
            shown_alone: Shown = (alone, None) if source else (None, alone)
            found.note("only_source" if source else "only_target", None, shown_alone)
        return found
    live = [at for at in sorted(source.units) if source.units[at][0] >= bounds.min_phy_offset]
    reference = [at for at in live if at < source.next_offset]
    both = [at for at in reference if at in target.units]
    for at, unit in target.units.items():
        expired = (not reference or at < reference[0]) and unit.phy_offset < bounds.min_phy_offset
        if not (at in source.units and at < source.next_offset) and not expired:
            found.note("extra", at, (None, unit.phy_offset), "phy_offset")
    for at in both:
        _note_odd(found, queue, at, source.units[at], target.units[at], times)
    end = _note_absent(found, source, reference, both, bounds)
    if target.next_offset != end:
        found.note("next_offset", None, (end, target.next_offset))
    return found


def _note_absent(
    found: Expected, source: Held, reference: list[int], both: list[int], bounds: Bounds
) -> int:
    """Note what the target lacks; return where it should go on."""
    for at in reference:
        if at in both:
            continue
        if (not both or at > both[-1]) and ends_behind(source.units[at], bounds):
            return at
        kind = "hole" if both and both[0] < at < both[-1] else "missing_tail"
        found.note("missing_head" if not both or at < both[0] else kind, at)
    return source.next_offset


def _note_odd(
    found: Expected, queue: QueueKey, at: int, left: Unit, right: Unit, times: int
) -> None:
    odd = different_fields(left, right, times)
    for name, shown in odd.items():
        found.note("different", at, shown, name)
    said, place = said_of(right), (right.phy_offset, right.phy_offset)
    if said is None and not odd:
        found.note("no_record", at, place)
    light = queue.topic.startswith("%LMQ%")
    if said is not None and not odd and not light and said[1] != queue.queue_id:
        found.note("other_queue", at, place)


def _alone(source: Held | None, target: Held | None, bounds: Bounds) -> str | None:
    """Return what is told of a queue that one side has alone; ``None``: that it has none."""
    one = source or target or NOTHING
    inside = [unit for at, unit in one.units.items() if target or at < one.next_offset]
    live = [unit for unit in inside if unit.phy_offset >= bounds.min_phy_offset]
    due = [unit for unit in live if target or not ends_behind(unit, bounds)]
    if (live and not due) or not (inside or one.next_offset):
        return None
    return f"{len(due)} units, next offset {one.next_offset}"


def different_fields(left: Unit, right: Unit, times: int) -> dict[str, Shown]:
    """A side on files has no times of its own: those of its records count, where they are.

    With both places alike the target's time has to be the record's as well.
    """
    odd: dict[str, Shown] = {
        name: (a, b) for name, a, b in zip(Unit._fields[:3], left, right, strict=False) if a != b
    }
    moved = left[:2] != right[:2]
    in_log = [said and said[0] for said in map(said_of, (left, right))]
    reported: list[int | None] = [left.store_timestamp if times & 1 else in_log[0]]
    reported.append(right.store_timestamp if times & 2 else in_log[1])
    differs = reported[0] != reported[1] and (not moved or bool(times & 2))
    if (times != 3 and None in reported) or not times:
        differs = False
    untrue = bool(times) and in_log[1] is not None and not moved and reported[1] != in_log[1]
    if differs or untrue:
        odd["store_timestamp"] = (reported[0] if differs else in_log[1], reported[1])
    return odd


NOTHING = Held({}, 0)


def expected_notes(
    queue: QueueKey, source: Held, target: Held, bounds: Bounds, times: int
) -> ComparisonNotes:
    """Say what is no difference, unit by unit."""
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
        and not different_fields(inside[at], target.units[at], times)
    ]  # fmt: skip
    said = [(at, said_of(inside[at])) for at in equal if not queue.topic.startswith("%LMQ%")]
    return ComparisonNotes(
        later=sum(at > met and ends_behind(inside[at], bounds) for at in live),
        expired_source=len(inside) - len(live), expired_target=len(gone),
        unreachable=len(source.units) - len(inside),
        shifted=sum(one is not None and one[1:] == (queue.queue_id, one[2]) and one[2] != at
                    for at, one in said),
        empty=not (inside or target.units or source.next_offset or target.next_offset
                   or target.behind),
        behind_end=source.behind,
    )  # fmt: skip


def ends_behind(unit: Unit, bounds: Bounds) -> bool:
    return unit.phy_offset + unit.size > bounds.complete_to


def within_end(one: Held) -> Held:
    units = {at: unit for at, unit in one.units.items() if at < one.next_offset}
    return Held(units, one.next_offset)


def whole(comparison: Comparison) -> ComparisonTally:
    """Compare all that either side has."""
    return comparison.run(union(comparison.source, comparison.target, (None, None))).tally


def compare(
    source: Side, target: Side, log: LogHeads, bounds: Bounds, run: int, times: int
) -> ComparisonTally:
    one = ModelSource(source, has_timestamps=bool(times & 1), run=run)
    other = ModelSource(target, has_timestamps=bool(times & 2), run=run + 1)
    return whole(Comparison(one, other, log, bounds))


@given(
    queues=st.tuples(held(), held(), held()),
    bounds=st.builds(
        Bounds, st.integers(0, 12).map(RECORD.__mul__), st.integers(25, 50).map(RECORD.__mul__)
    ),
    run=st.integers(1, 6),
    times=st.sampled_from([0, 1, 2, 3]),
)
def test_everything_is_as_the_model_says(
    log: LogHeads,
    queues: tuple[tuple[Held | None, Held | None], ...],
    bounds: Bounds,
    run: int,
    times: int,
) -> None:
    source = {key: one for key, (one, _) in zip(QUEUES, queues, strict=True) if one}
    target = {key: one for key, (_, one) in zip(QUEUES, queues, strict=True) if one}
    tally = compare(source, target, log, bounds, run, times)
    keys = sorted(source.keys() | target.keys(), key=key_order)
    wanted = {key: expected(key, source.get(key), target.get(key), bounds, times) for key in keys}
    differing = [key for key in keys if wanted[key]]
    counts, fields = Counter[str](), Counter[str]()
    for one in wanted.values():
        fields.update({name: len(units) for (kind, name), units in one.items()
                       if kind == "different" and name})  # fmt: skip
        units_of: dict[str, set[int | None]] = {}
        for (kind, _), units in one.items():
            units_of.setdefault(kind, set()).update(units)
        counts.update({kind: len(units) for kind, units in units_of.items()})
    assert (tally.counts, tally.fields) == (counts, fields)
    if not tally.counts and not tally.notes.later:
        assert tally.source == tally.target
    notes: Counter[str] = Counter()
    for key in keys:
        sides = source.get(key, NOTHING), target.get(key, NOTHING)
        notes.update(expected_notes(key, *sides, bounds, times).model_dump())
    assert tally.notes.model_dump() == notes
    assert tally.queues == len(keys) - notes["empty"]
    reached = [
        unit for held in source.values() for at, unit in held.units.items() if at < held.next_offset
    ]
    assert tally.source.units == len(reached) - notes["expired_source"] - notes["later"]
    assert tally.source.bytes == tally.source.units * RECORD
    every = [unit for held in target.values() for unit in held.units.values()]
    assert tally.target.units == len(every) - notes["expired_target"]
    assert tally.differing == len(differing)
    assert [QueueKey(each.topic, each.queue_id) for each in tally.listed] == differing
    for report in tally.listed:
        if not report.more_findings:
            check_findings(report, wanted[QueueKey(report.topic, report.queue_id)])
    check_topics(tally, source, target, wanted)


def check_findings(queue: ComparedQueue, wanted: Expected) -> None:
    """Neighbours are one finding, which shows the first of them; faults of the queue come first."""
    found: list[tuple[object, ...]] = []
    for (kind, name), units in wanted.items():
        offsets = [at for at in units if at is not None]
        found += [(kind, None, None, 0, name, *units[None])] if None in units else []
        begins = [at for at in offsets if at - 1 not in units]
        for first in begins:
            last = next(at for at in count(first) if at + 1 not in units)
            found.append((kind, first, last, last - first + 1, name, *units[first]))
    listed = [
        (one.kind.value, one.first, one.last, one.units, one.field, one.source, one.target)
        for one in queue.findings
    ]
    assert Counter(listed) == Counter(found)
    firsts = [-1 if one[1] is None else one[1] for one in listed]
    assert firsts == sorted(firsts)


def check_topics(
    tally: ComparisonTally, source: Side, target: Side, wanted: dict[QueueKey, Expected]
) -> None:
    """A topic is one side's alone if all of its queues are that ever had a unit."""
    alone: dict[str, set[str]] = {}
    units = Counter[str]()
    for key, one in wanted.items():
        kinds = [kind for kind, _ in one if kind.startswith("only_")]
        sides = source.get(key, NOTHING), target.get(key, NOTHING)
        if kinds or any(side.next_offset for side in sides) or sides[1].units or (
            any(at < sides[0].next_offset for at in sides[0].units)
        ):  # fmt: skip
            alone.setdefault(key.topic, set()).add(kinds[0] if kinds else "both")
        for kind in kinds:
            (shown,) = one[kind, None].values()
            units[kind] += int(str(shown[kind == "only_target"]).split()[0])
    topics = Counter(name for names in alone.values() if len(names) == 1 for name in names)
    assert tally.topics_only_source == topics["only_source"]
    assert tally.topics_only_target == topics["only_target"]
    assert tally.units_only_source == units["only_source"]
    assert tally.units_only_target == units["only_target"]


@given(queues=st.tuples(held(), held(), held()), run=st.integers(1, 6))
def test_a_queue_of_one_side_alone_is_seen_from_either(
    log: LogHeads, queues: tuple[tuple[Held | None, Held | None], ...], run: int
) -> None:
    bounds = Bounds(0, 1 << 60)
    source = {key: within_end(one) for key, (one, _) in zip(QUEUES, queues, strict=True) if one}
    there = compare(source, {}, log, bounds, run, 3)
    back = compare({}, source, log, bounds, run, 3)
    number = sum(bool(one.units or one.next_offset) for one in source.values())
    assert (
        there.counts.get(DifferenceKind.ONLY_SOURCE, 0)
        == back.counts.get(DifferenceKind.ONLY_TARGET, 0)
        == number
    )
    topics = {key.topic for key, one in source.items() if one.units or one.next_offset}
    assert there.topics_only_source == back.topics_only_target == len(topics)
    assert there.source == back.target
    assert there.source.units == sum(len(one.units) for one in source.values())


def test_the_union_is_in_key_order_and_says_which_side_has_a_queue() -> None:
    one = ModelSource(dict.fromkeys(QUEUES[:2], NOTHING), has_timestamps=True, run=1)
    other = ModelSource(dict.fromkeys(QUEUES[1:], NOTHING), has_timestamps=True, run=1)
    assert list(union(one, other, (None, None))) == list(zip(QUEUES, (1, 3, 2), strict=True))
    assert list(union(other, one, (None, None))) == list(zip(QUEUES, (2, 3, 1), strict=True))


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
    source = {QUEUES[2]: Held({at: units[at] for at in range(10)}, 20)}
    target = {QUEUES[2]: Held(units, 20)}
    tally = compare(source, target, log, Bounds(0, 1 << 60), 2, 3)
    (finding,) = tally.listed[0].findings
    assert (finding.kind, finding.first, finding.last, finding.units) == (
        DifferenceKind.EXTRA,
        10,
        19,
        10,
    )


def test_a_report_lists_as_many_queues_as_it_may(
    log: LogHeads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.store.comparing.comparison.MAX_QUEUES", 2)
    tally = compare({key: Held({}, 1) for key in QUEUES}, {}, log, Bounds(0, 1 << 60), 1, 3)
    assert tally.differing == 3
    assert [(one.topic, one.queue_id) for one in tally.listed] == QUEUES[:2]


# ---- what cannot be read


class _Broken(ModelSource):
    """A side of which the end of one queue cannot be read, and the second run of another."""

    def next_offset(self, queue: QueueKey) -> int:
        if queue == QUEUES[0]:
            raise CorruptionError("no end")
        return super().next_offset(queue)

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        runs = super().runs(queue, max_units)
        yield next(runs)
        if queue == QUEUES[1]:
            raise CorruptionError("no more runs")
        yield from runs


@pytest.mark.parametrize("broken", [(1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("sides", [1, 2, 3])
def test_what_cannot_be_read_is_told_of_its_queue_and_side_and_the_rest_compared(
    log: LogHeads, broken: tuple[int, int], sides: int
) -> None:
    side = {
        key: Held({at: right_unit(2 * at + key.queue_id) for at in range(4)}, 4) for key in QUEUES
    }
    held = [side if sides & 1 else {}, side if sides & 2 else {}]
    source, target = (
        (_Broken if odd else ModelSource)(one, has_timestamps=True, run=3)
        for odd, one in zip(broken, held, strict=True)
    )
    tally = whole(Comparison(source, target, log, Bounds(0, 1 << 60)))
    met = [number for number in (0, 1) if broken[number] and held[number]]
    found = {
        (one.topic, one.queue_id): [(each.source, each.target) for each in one.findings
                                    if each.kind is DifferenceKind.UNREADABLE]
        for one in tally.listed
    }  # fmt: skip
    reported = ["no end", "no more runs"] if met else []
    assert tally.counts.get(DifferenceKind.UNREADABLE, 0) == len(reported)
    for key, text in zip(QUEUES, reported, strict=False):
        shown = (text, None) if met[0] == 0 else (None, text)
        assert found[key] == [shown]
    assert found.get(QUEUES[2], []) == []
    alone = {1: DifferenceKind.ONLY_SOURCE, 2: DifferenceKind.ONLY_TARGET}.get(sides)
    assert sum(tally.counts.values()) == len(reported) + (3 - len(reported) if alone else 0)
    topics = 0 if sides == 3 else 1 if met else 2
    assert tally.topics_only_source + tally.topics_only_target == topics


def test_a_queue_without_an_end_says_nothing_of_its_topic(log: LogHeads) -> None:
    side = {key: Held({}, 4) for key in QUEUES[:2]}
    source = _Broken(side, has_timestamps=True, run=3)
    source.runs = lambda *_: iter(())  # type: ignore[method-assign]
    target = ModelSource({}, has_timestamps=True, run=3)
    tally = whole(Comparison(source, target, log, Bounds(0, 1 << 60)))
    assert tally.counts == {DifferenceKind.UNREADABLE: 1, DifferenceKind.ONLY_SOURCE: 1}
    assert tally.topics_only_source == 1


# ---- ranges


class _Reported(ModelSource):
    """A side that knows the ends of its queues."""

    def written_ends(
        self, after: QueueKey | None = None, up_to: QueueKey | None = None
    ) -> Iterator[WrittenEnd]:
        queues = self.queues(after, up_to)
        return (WrittenEnd(queue, self.next_offset(queue), -1) for queue in queues)


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
    for kinds in ((_Reported, ModelSource), (ModelSource, _Reported), (ModelSource, ModelSource)):
        opened = [
            kind({queue: Held({}, end) for queue, end in side.items()}, has_timestamps=True, run=1)
            for kind, side in zip(kinds, sides, strict=True)
        ]
        reported = [side for kind, side in zip(kinds, sides, strict=True) if kind is _Reported]
        wanted: list[QueueKey | None] = []
        units = queues = 0
        topics: dict[str, list[QueueKey]] = {}
        for queue in sorted({queue for side in reported or sides for queue in side}, key=key_order):
            topics.setdefault(queue.topic, []).append(queue)
        last: QueueKey | None = None
        for held in topics.values():
            if units >= most[0] or queues >= most[1]:
                assert last is not None
                wanted.append(QueueKey(last.topic, -1))
                units = queues = 0
            queues += len(held)
            units += sum(max(0, *(side[queue] for side in reported)) for queue in held if reported)
            last = held[-1]
        ranges = cut_ranges(*map(_Place, opened), max_units=most[0], max_queues=most[1])
        assert [after for after, _ in ranges] == [None, *wanted]
        assert [last for _, last in ranges] == [*wanted, None]
        found = [[queue for queue, _ in union(opened[0], opened[1], one)] for one in ranges]
        assert sum(map(len, found)) == len(sides[0].keys() | sides[1].keys())
        in_ranges = [{queue.topic for queue in one} for one in found]
        assert sum(map(len, in_ranges)) == len(set().union(*in_ranges)), "no topic is cut in two"
        assert [side.closed for side in opened] == [1, 1]


class _Checked:
    """Notes which units are held against their whole records, and finds fault with one."""

    def __init__(self) -> None:
        self.requested: list[tuple[object, ...]] = []

    def problem(self, found: QueueFindings, *unit: int) -> DifferenceKind | None:
        self.requested.append((found.queue, *unit))
        return DifferenceKind.OTHER_TAGS if unit[0] == 2 else None


def test_a_record_is_looked_at_whole_only_where_its_head_is_the_units(log: LogHeads) -> None:
    units = {at: right_unit(2 * at) for at in range(6)}
    units[1] = units[1]._replace(size=RECORD - 1)  # no record
    units[3] = right_unit(7)  # of queue 1
    light = {0: right_unit(7)}
    side = {QUEUES[0]: Held(units, 6), QUEUES[2]: Held(light, 1)}
    other = {
        QUEUES[0]: Held(units | {4: units[4]._replace(tags_code=9)}, 6),
        QUEUES[2]: Held(light, 1),
    }
    source, target = (ModelSource(one, has_timestamps=True, run=4) for one in (side, other))
    check: Any = _Checked()
    tally = whole(Comparison(source, target, log, Bounds(0, 1 << 60), check.problem))
    wanted = [(QUEUES[0], at, *units[at][:3]) for at in (0, 2, 5)]
    assert sorted(check.requested) == [(QUEUES[2], 0, *light[0][:3]), *wanted]
    kinds = [
        DifferenceKind.NO_RECORD,
        DifferenceKind.OTHER_QUEUE,
        DifferenceKind.DIFFERENT,
        DifferenceKind.OTHER_TAGS,
    ]
    assert tally.counts == dict.fromkeys(kinds, 1)
    reported = {
        each.kind: (each.first, each.source) for one in tally.listed for each in one.findings
    }
    assert reported[DifferenceKind.OTHER_TAGS] == (2, units[2].tags_code)
    assert reported[DifferenceKind.NO_RECORD] == (1, units[1].phy_offset)
