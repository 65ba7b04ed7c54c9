"""Blocks, their merged index and what is read of it, against a dict of units a queue."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cqstore.migration.from_log.block_source import BlockUnitSource
from cqstore.migration.from_log.blocks import BlockWriter, map_units, read_index
from cqstore.migration.from_log.merge import PIECES, QUEUES, Merged, merge_indexes
from cqstore.migration.from_log.scan_plan import ScanDone, ScanSpace
from cqstore.migration.markers import files_in
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, QueueGapError
from cqstore.store.queue.bulk import UNIT_ROWS, key_order
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import QueueKey, UnitBatch

KEYS = [QueueKey("b", 1), QueueKey("aa", 0), QueueKey("b", -1), QueueKey("\udcff", 7)]
UNKNOWN = [QueueKey("a", 0), QueueKey("b", 0), QueueKey("zzz", 9)]
Event = tuple[int, int]
"""Number of a queue, and its queue offset."""


@dataclass
class Model:
    """Every queue's units, phy offset by queue offset, as ``put_batch`` takes them one by one."""

    units: dict[QueueKey, dict[int, int]] = field(default_factory=dict)
    restarts: list[QueueRestart] = field(default_factory=list)

    def put(self, key: QueueKey, offset: int, phy_offset: int) -> None:
        held = self.units.setdefault(key, {})
        end = max(held, default=offset - 1) + 1
        assert offset <= end
        if offset < end:
            dropped = range(max(offset, min(held)), end)
            self.restarts.append(QueueRestart(key, dropped, phy_offset))
            for gone in dropped:
                del held[gone]
        held[offset] = phy_offset


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Draw a log: queues go on, or start over at or before their end."""
    events: list[Event] = []
    held: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 25))):
        queue = draw(st.integers(0, len(KEYS) - 1))
        end = held.get(queue, draw(st.integers(0, 3)))
        back = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 3, 9]))
        events.append((queue, max(end - back, 0)))
        held[queue] = events[-1][1] + 1
    return events


def row(phy_offset: int) -> tuple[int, int, int, int]:
    return phy_offset, phy_offset + 1, -phy_offset, phy_offset + 2


def scanned(
    space: ScanSpace, parts: Sequence[Sequence[Event]], block_units: int = 9
) -> list[ScanDone]:
    """Write the blocks of each task; the records of the log lie 10 bytes apart."""
    scans, phy_offset = [], 0
    for task, events in enumerate(parts):
        folder = space.attempt(task, "a")
        folder.mkdir(parents=True)
        writer = BlockWriter(folder)
        for at in range(0, len(events), block_units):
            units = UnitBatch()
            for queue, offset in events[at : at + block_units]:
                units.add(KEYS[queue], offset, *row(phy_offset))
                phy_offset += 10
            writer.add(units)
        digest = writer.finish()
        done = ScanDone(task, "a", 0, units=len(events), digest=digest, files=files_in(folder))
        assert space.mark(task, done) is None
        scans.append(done)
    return scans


def fresh(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.getbasetemp() / "merged"
    shutil.rmtree(root, ignore_errors=True)
    return Workspace(root)


@given(
    block_units=st.sampled_from([1, 3, 100]),
    events=logs(),
    cuts=st.lists(st.integers(0, 25), max_size=3).map(sorted),
    ends=st.dictionaries(st.sampled_from([*KEYS, UNKNOWN[1]]), st.integers(0, 5)),
)
@example(block_units=1, events=[(0, 1), (0, 0)], cuts=[], ends={})
@example(block_units=3, events=[(1, 2), (1, 3), (0, 0), (1, 0)], cuts=[3], ends={})
def test_what_is_read_is_what_the_log_says_last(
    tmp_path_factory: pytest.TempPathFactory,
    block_units: int,
    events: list[Event],
    cuts: list[int],
    ends: dict[QueueKey, int],
) -> None:
    space = fresh(tmp_path_factory)
    bounds = [0, *cuts, len(events)]
    parts = [events[a:b] for a, b in pairwise(bounds)]
    scans = scanned(ScanSpace(space), parts, block_units)
    merged = merge_indexes(ScanSpace(space), scans, ends.items())
    model = Model()
    for at, (queue, offset) in enumerate(events):
        model.put(KEYS[queue], offset, at * 10)
    expired = {key: end for key, end in ends.items() if end and key not in model.units}
    keys = sorted({*model.units, *expired}, key=key_order)
    total = sum(map(len, model.units.values()))
    restarts = sorted(merged.restarts, key=lambda one: one.phy_offset)
    assert Merged(len(keys), total, model.restarts) == Merged(merged.queues, merged.units, restarts)
    source = BlockUnitSource(space)
    for after in (None, *keys, *UNKNOWN):
        for up_to in (None, *keys, *UNKNOWN):
            wanted = [
                key for key in keys
                if (after is None or key_order(key) > key_order(after))
                and (up_to is None or key_order(key) <= key_order(up_to))
            ]  # fmt: skip
            assert list(source.queues(after, up_to)) == wanted
    for key in [*keys, *UNKNOWN, *reversed(keys)]:
        held = model.units.get(key, {})
        end = max(held, default=expired.get(key, 0) - 1) + 1
        first = min(held, default=end)
        assert source.next_offset(key) == end
        assert source.span(key) == (first, end)
        assert source.behind(key) is None
        check_reads(source, key, held)
    source.close()


def check_reads(source: BlockUnitSource, key: QueueKey, held: dict[int, int]) -> None:
    every = [(offset, row(phy_offset)) for offset, phy_offset in sorted(held.items())]
    for most in (1, 2, 100):
        runs = list(source.runs(key, most))
        assert all(0 < len(run.rows) <= most for run in runs)
        found = [(run.queue_offset + at, unit)
                 for run in runs for at, unit in enumerate(run.rows.tolist())]  # fmt: skip
        assert found == every
    for offset in range(max(held, default=0) + 3):
        for count in (0, 1, 4, 50):
            rows = np.zeros(count, UNIT_ROWS)
            there = next((n for n in range(count) if offset + n not in held), count)
            assert source.fill(key, offset, rows) == there
            assert rows[:there].tolist() == [row(held[offset + n]) for n in range(there)]
            assert not rows[there:].view(np.uint8).any()


def test_a_unit_that_is_missing_inside_a_queue_is_named(tmp_path: Path) -> None:
    space = ScanSpace(Workspace(tmp_path))
    scans = scanned(space, [[(1, 0), (0, 4), (0, 5)], [(1, 1), (0, 7)]])
    with pytest.raises(QueueGapError, match="queue 1 of topic 'b'") as caught:
        merge_indexes(space, scans, [])
    assert caught.value.phy_offset == 40
    assert (caught.value.expected, caught.value.got) == ("queue offset 6", "queue offset 7")
    assert not space.merged.exists()


def test_an_older_merged_index_is_replaced(tmp_path: Path) -> None:
    space = ScanSpace(Workspace(tmp_path))
    scans = scanned(space, [[(0, 0), (1, 5)]])
    merge_indexes(space, scans, [])
    space.merged.with_name("merging").mkdir()
    (space.merged.with_name("merging") / "left").touch()
    assert merge_indexes(space, scans, [(UNKNOWN[2], 3)]).queues == 3
    assert not (space.merged / "left").exists()
    assert BlockUnitSource(Workspace(tmp_path)).next_offset(UNKNOWN[2]) == 3


# ---- damage


@pytest.fixture
def space(tmp_path: Path) -> ScanSpace:
    space = ScanSpace(Workspace(tmp_path))
    merge_indexes(space, scanned(space, [[(0, 0)], [(1, 5), (1, 6)]]), [])
    return space


def test_an_index_that_was_changed_is_refused(space: ScanSpace) -> None:
    folder, done = space.attempt(1, "a"), space.read_done(1)
    assert done is not None
    keys, runs = read_index(folder, done.digest)
    assert (keys, runs.tolist()) == ([KEYS[1]], [(0, 5, 0, 2)])
    for name in ("runs.npy", "queues.jsonl"):
        data = bytearray((folder / name).read_bytes())
        data[-3] ^= 1
        (folder / name).write_bytes(data)
        with pytest.raises(CorruptionError, match="index of scanned blocks") as caught:
            read_index(folder, done.digest)
        assert caught.value.path == folder
        assert caught.value.expected == done.digest != caught.value.got
        data[-3] ^= 1
        (folder / name).write_bytes(data)


def test_blocks_without_a_unit_are_empty(tmp_path: Path) -> None:
    space = ScanSpace(Workspace(tmp_path))
    (done,) = scanned(space, [[]])
    folder = space.attempt(0, "a")
    assert len(map_units(folder)) == 0
    assert [len(part) for part in read_index(folder, done.digest)] == [0, 0]
    assert merge_indexes(space, [done], []).queues == 0
    assert list(BlockUnitSource(Workspace(tmp_path)).queues(None, None)) == []


def test_what_is_no_merged_index_is_refused(space: ScanSpace) -> None:
    workspace = Workspace(space.root.parent)
    for name in (QUEUES, PIECES):
        kept = (space.merged / name).read_bytes()
        np.save(space.merged / name, np.zeros(2, np.int64))
        with pytest.raises(CorruptionError, match="not a valid merged index") as caught:
            BlockUnitSource(workspace)
        assert caught.value.path == space.merged
        (space.merged / name).write_bytes(kept)
    assert BlockUnitSource(workspace).next_offset(KEYS[1]) == 7


def test_a_piece_behind_the_end_of_its_file_is_refused(space: ScanSpace) -> None:
    pieces = np.load(space.merged / PIECES)
    pieces["row"][pieces["task"] == 1] += 1
    np.save(space.merged / PIECES, pieces)
    source = BlockUnitSource(Workspace(space.root.parent))
    rows = np.zeros(2, UNIT_ROWS)
    assert source.fill(KEYS[0], 0, rows) == 1
    with pytest.raises(CorruptionError, match="missing at the end of a block file") as caught:
        source.fill(KEYS[1], 5, rows)
    assert caught.value.path == space.attempt(1, "a") / "units"
    assert (caught.value.expected, caught.value.got) == (3, 2)


def test_a_queue_whose_pieces_end_before_it_ends_there(space: ScanSpace) -> None:
    """What is planned then lacks a unit, and is refused."""
    queues = np.load(space.merged / QUEUES)
    queues["next_offset"] += 2
    np.save(space.merged / QUEUES, queues)
    source = BlockUnitSource(Workspace(space.root.parent))
    assert source.next_offset(KEYS[1]) == 9
    runs = [(run.queue_offset, len(run.rows)) for run in islice(source.runs(KEYS[1], 100), 9)]
    assert runs == [(5, 2)]
    assert source.fill(KEYS[1], 5, np.zeros(4, UNIT_ROWS)) == 2


def test_blocks_whose_files_have_gone_are_told_by_their_marker(space: ScanSpace) -> None:
    (space.attempt(1, "a") / "units").unlink()
    assert space.read_done(1) is None
    with pytest.raises(CorruptionError, match="scanned blocks are missing") as caught:
        BlockUnitSource(Workspace(space.root.parent)).fill(KEYS[1], 5, np.zeros(1, UNIT_ROWS))
    assert caught.value.path == space.done(1)
    again = ScanDone(1, "b", 0)
    space.attempt(1, "b").mkdir()
    assert space.mark(1, again) is None, "a marker without its files counts for nothing"
    assert space.read_done(1) == again
    assert space.mark(1, ScanDone(1, "c", 0)) == again, "the first one stands"
    assert space.read_done(1) == again
    assert sorted(path.name for path in space.root.iterdir()) == [
        "000000.a", "000000.done", "000001.a", "000001.b", "000001.done", "merged"
    ]  # fmt: skip
