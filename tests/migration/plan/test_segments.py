"""Queues cut into slices and slices put together to segments, against a source that is a dict."""

import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.migration.plan.plan import Segment, Slice, read_slices
from cqstore.migration.plan.segment_writer import SegmentWriter
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.queue.bulk import UNIT_ROWS, BulkBackend, UnitRows, UnitSource
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig

MAX_SLICES = 3


class _Source:
    """Every unit of a queue has its own offset in each field; some are missing."""

    def __init__(self, gone: int = -1) -> None:
        self.gone = gone

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        for at in range(len(rows)):
            if queue_offset + at == self.gone:
                return at
            rows[at] = unit(queue, queue_offset + at)
        return len(rows)


class _Target:
    def __init__(self, step: int) -> None:
        self.step = step

    def slice_units(self, _: StoreConfig) -> int:
        return self.step


def counting(lengths: list[int]) -> Callable[[UnitRows], None]:
    """Return a function that notes how many rows it is given."""
    return lambda rows: lengths.append(len(rows))


def unit(queue: QueueKey, at: int) -> tuple[int, int, int, int]:
    return 1000 * queue.queue_id + at, at + 1, at + 2, at + 3


def checksum(queue: QueueKey, begin: int, end: int) -> int:
    return zlib.crc32(np.array([unit(queue, at) for at in range(begin, end)], UNIT_ROWS).tobytes())


def made(
    space: Workspace, queues: list[tuple[int, int]], step: int, most: int, reported: list[int]
) -> tuple[list[Segment], int]:
    source, target = cast("UnitSource", _Source()), cast("BulkBackend", _Target(step))
    writer = SegmentWriter(source, target, StoreConfig(), most, Path("root"), counting(reported))

    def slices() -> Iterator[Slice]:
        for number, (begin, end) in enumerate(queues):
            yield from writer.cut(QueueKey("t", number), begin, end)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.migration.plan.segment_writer._MAX_SLICES", MAX_SLICES)
        segments = writer.write(space, slices())
    return segments, writer.units


@given(
    queues=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8),
    step=st.sampled_from([1, 4]), most=st.integers(-1, 15),
)  # fmt: skip
def test_slices_and_segments_are_as_large_as_they_may_be_and_no_larger(
    tmp_path_factory: pytest.TempPathFactory, queues: list[tuple[int, int]], step: int, most: int
) -> None:
    space = Workspace(tmp_path_factory.getbasetemp() / "segments")
    space.root.mkdir(exist_ok=True)
    queues = [(begin, begin + units) for begin, units in queues]
    reported: list[int] = []
    segments, units = made(space, queues, step, most, reported)
    assert units == sum(end - begin for begin, end in queues)
    assert sum(reported) == units
    most = max(most, 1)
    largest = max(most // step, 1) * step
    found = [list(read_slices(space.slices, one)) for one in segments]
    slices = [each for one in found for each in one]
    for number, (begin, end) in enumerate(queues):
        mine = [each for each in slices if each.queue == QueueKey("t", number)]
        assert (mine[0].begin, mine[-1].end) == (begin, end)
        assert all(one.end == two.begin and not one.end % step for one, two in pairwise(mine))
        assert all(one.begin // step * step + largest == one.end for one in mine[:-1])
        assert mine[-1].end <= mine[-1].begin // step * step + largest
        assert [each.next_offset for each in mine] == [None] * (len(mine) - 1) + [end]
    assert all(each.checksum == checksum(each.queue, each.begin, each.end) for each in slices)
    for number, (one, held) in enumerate(zip(segments, found, strict=True)):
        names = [f"{each.queue.topic}/{each.queue.queue_id}" for each in held]
        assert (one.number, one.slices) == (number, len(held))
        assert (one.first, one.last) == (names[0], names[-1])
        assert one.units == sum(each.end - each.begin for each in held)
        assert one.units <= most or len(held) == 1
        assert len(held) <= MAX_SLICES
    for (one, _), (_, behind) in pairwise(zip(segments, found, strict=True)):
        more = behind[0].end - behind[0].begin
        assert one.slices == MAX_SLICES or one.units + more > most
    assert sum(one.size_bytes for one in segments) == space.slices.stat().st_size


def test_a_unit_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqstore.migration.plan.segment_writer._CHUNK_UNITS", 4)
    for gone in (3, 4, 9, 11):
        source, target = cast("UnitSource", _Source(gone)), cast("BulkBackend", _Target(1))
        writer = SegmentWriter(source, target, StoreConfig(), 100, Path("root"))
        with pytest.raises(
            CorruptionError, match="a unit is missing inside queue 5 of topic 't'"
        ) as caught:
            list(writer.cut(QueueKey("t", 5), 2, 12))
        assert caught.value.path == Path("root")
        wanted = f"a unit at queue offset {gone}"
        assert (caught.value.expected, caught.value.got) == (wanted, "none")


def test_a_checksum_is_that_of_all_units_however_many_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for chunk in (1, 3, 4, 100):
        monkeypatch.setattr("cqstore.migration.plan.segment_writer._CHUNK_UNITS", chunk)
        source, target = cast("UnitSource", _Source()), cast("BulkBackend", _Target(1))
        reported: list[int] = []
        writer = SegmentWriter(
            source,
            target,
            StoreConfig(),
            100,
            Path("root"),
            counting(reported),
        )
        (found,) = writer.cut(QueueKey("t", 5), 2, 14)
        assert found.checksum == checksum(QueueKey("t", 5), 2, 14)
        assert reported == [chunk] * (12 // chunk) + [12 % chunk] * bool(12 % chunk)


def test_lines_that_make_no_sense_or_were_changed_are_refused(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    segments, _ = made(space, [(0, 9), (0, 9)], 1, 9, [])
    first, second = segments
    assert [each.queue.queue_id for each in read_slices(space.slices, second)] == [1]
    changed = second.model_copy(update={"digest": first.digest})
    with pytest.raises(CorruptionError, match="lines of segment 1 were modified") as caught:
        list(read_slices(space.slices, changed))
    assert (caught.value.path, caught.value.position) == (space.slices, second.position)
    assert (caught.value.expected, caught.value.got) == (first.digest, second.digest)
    ends: list[tuple[Any, Any, bool]] = [
        (0, 0, True), (-1, 0, False), (2, 1, False), (0, 1 << 63, False), (5, 5, True),
    ]  # fmt: skip
    for begin, end, good in ends:
        line = Slice(QueueKey("t", 1), begin, end, None, 7)
        space.slices.write_text(line.line())
        (segment,) = SegmentWriter(
            cast("UnitSource", _Source()), cast("BulkBackend", _Target(1)), StoreConfig(), 9,
            tmp_path,
        ).write(space, iter([line]))  # fmt: skip
        if good:
            assert list(read_slices(space.slices, segment)) == [line]
            continue
        with pytest.raises(CorruptionError, match="invalid range of units in the plan") as caught:
            list(read_slices(space.slices, segment))
        assert caught.value.got == line.line().rstrip()
    with pytest.raises(StoreIOError, match="no"):
        list(read_slices(tmp_path / "no", first))
