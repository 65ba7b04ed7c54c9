"""Batches of units against plain lists: filtered, grouped, packed."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import CorruptionError, StoreFailedError
from cqstore.store.queue.bulk import key_order, topics_in_key_order
from cqstore.store.queue.units import BlockStop, CqUnit, QueueKey, UnitBatch, UnitBlock
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.told import CONFIG

KEYS = [QueueKey("a", 0), QueueKey("a", 1), QueueKey("b", 0)]
Row = tuple[QueueKey, int, tuple[int, int, int, int]]
Choice = tuple[Callable[[UnitBatch], UnitBatch], Callable[[Row], bool]]
MOST = 1 << 58


def drawn(seed: int, count: int) -> list[Row]:
    """Units of three queues as the log has them; now and then a queue goes on elsewhere."""
    draw = random.Random(seed)
    following = dict.fromkeys(KEYS, 0)
    rows: list[Row] = []
    for number in range(count):
        key = draw.choice(KEYS)
        if draw.random() < 0.15:
            following[key] = draw.randrange(5)
        rows.append((key, following[key], (100 * number, 90, -number, 1_000_000 + number)))
        following[key] += 1
    return rows


def batch_of(rows: list[Row]) -> UnitBatch:
    batch = UnitBatch()
    for key, queue_offset, unit in rows:
        batch.add(key, queue_offset, *unit)
    batch.end_phy_offset = 100 * len(rows)
    return batch


def rows_of(batch: UnitBatch) -> list[Row]:
    units = [*struct.iter_unpack(">qiqq", bytes(batch.units))]
    keys = [batch.queues[index] for index in batch.queue_index]
    return [*zip(keys, batch.queue_offset, units, strict=True)]


@pytest.mark.parametrize(("seed", "count"), [(1, 0), (2, 1), (3, 2), (4, 40), (5, 200)])
def test_a_batch_holds_what_was_added_in_order(seed: int, count: int) -> None:
    rows = drawn(seed, count)
    batch = batch_of(rows)
    assert (len(batch), rows_of(batch)) == (count, rows)
    wanted: list[Choice] = [
        (lambda batch: batch.of_topics("a".__eq__), lambda row: row[0].topic == "a"),
        (lambda batch: batch.of_topics("b".__eq__), lambda row: row[0].topic == "b"),
        (lambda batch: batch.of_topics(lambda _: False), lambda _: False),
        (lambda batch: batch.since(100), lambda row: row[2][0] >= 100),
        (lambda batch: batch.since(101), lambda row: row[2][0] >= 101),
        (lambda batch: batch.since(1 << 40), lambda _: False),
    ]
    for choose, is_chosen in wanted:
        chosen = choose(batch)
        left = [row for row in rows if is_chosen(row)]
        assert rows_of(chosen) == left
        assert chosen.end_phy_offset == 100 * count
        assert set(chosen.queues) == {row[0] for row in left}
        chosen = choose(batch_of(rows))
        chosen.add(KEYS[0], 7, 1, 2, 3, 4)
        chosen.add(KEYS[2], 8, 5, 6, 7, 8)
        assert rows_of(chosen)[-2:] == [(KEYS[0], 7, (1, 2, 3, 4)), (KEYS[2], 8, (5, 6, 7, 8))]
        assert len(chosen.queues) == len(set(chosen.queues))
    assert batch.of_topics(lambda _: True) is batch


@pytest.mark.parametrize("order", [None, key_order, lambda key: (-key.queue_id, key.topic)])
@pytest.mark.parametrize(("seed", "count"), [(1, 0), (2, 1), (3, 2), (4, 40), (5, 200)])
def test_runs_are_units_of_one_queue_without_a_gap(
    seed: int, count: int, order: Callable[[QueueKey], Any] | None
) -> None:
    rows = drawn(seed, count)
    expected: list[list[Row]] = []
    keys = list(dict.fromkeys(row[0] for row in rows))
    for key in sorted(keys, key=order) if order else keys:
        before = None
        for row in rows:
            if row[0] != key:
                continue
            if before is None or row[1] != before + 1:
                expected.append([])
            expected[-1].append(row)
            before = row[1]
    runs = batch_of(rows).runs(order)
    assert len(runs) == len(expected)
    assert runs.queues == [run[0][0] for run in expected]
    assert runs.first_offsets == [run[0][1] for run in expected]
    for number, run in enumerate(expected):
        packed = runs.units[runs.starts[number] : runs.ends[number]].tobytes()
        assert [*struct.iter_unpack(">qiqq", packed)] == [row[2] for row in run]


def test_runs_of_more_queues_than_16_bits_can_number() -> None:
    rows = [(QueueKey("t", number), 0, (number, 9, 0, 0)) for number in range((1 << 16) + 1)]
    assert batch_of(rows).runs().queues == [row[0] for row in rows]


def lengths(batch: UnitBatch) -> set[int]:
    columns = (batch.queue_index, batch.queue_offset, batch.units)
    return {len(batch), *map(len, columns)}


@pytest.mark.parametrize(
    "columns",
    [
        (b"\0" * 4, b"\0" * 8, b"\0" * 56), (b"\0" * 4, b"\0" * 16, b"\0" * 28),
        (b"\0" * 8, b"\0" * 8, b"\0" * 28), (b"\0" * 4, b"\0" * 8, b"\0" * 27),
        (b"\0" * 3, b"\0" * 8, b"\0" * 28),
    ],
)  # fmt: skip
def test_columns_of_different_lengths_leave_nothing(columns: tuple[bytes, bytes, bytes]) -> None:
    batch = UnitBatch()
    with pytest.raises(ValueError, match="different lengths"):
        batch.take(KEYS[:1], *columns)
    assert lengths(batch) == {0}
    rows = [(KEYS[2], 7, (1, 2, 3, 4))]
    batch.take(KEYS[2:], b"\0" * 4, (7).to_bytes(8, "little"), struct.pack(">qiqq", 1, 2, 3, 4))
    assert rows_of(batch) == rows


def test_a_put_that_fails_behind_the_room_for_its_units_leaves_no_row(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        assert store.put_message(Message("t", b"x")).ok
        pending = components_of(store).dispatcher.pending
        batch = pending.units
        pending.offsets.next[QueueKey("t", 0)] = 1 << 70  # no queue is so long
        with pytest.raises(OverflowError):
            store.put_messages([Message("t", b"y"), Message("t", b"z")])
        assert lengths(batch) == {1}
        with pytest.raises(StoreFailedError):
            store.put_message(Message("t", b"y"))


@pytest.mark.parametrize("odd", [-1, MOST])
def test_an_offset_that_no_queue_has_is_named(odd: int) -> None:
    rows = [(KEYS[0], 0, (0, 9, 0, 0)), (KEYS[2], MOST - 1, (5, 9, 0, 0))]
    assert len(batch_of(rows).runs()) == 2
    bad = batch_of([*rows, (KEYS[1], odd, (77, 9, 0, 0)), (KEYS[0], -5, (88, 9, 0, 0))])
    with pytest.raises(CorruptionError, match="queue 1 of topic 'a' has an invalid") as raised:
        bad.runs()
    assert raised.value.phy_offset == 77
    assert (raised.value.expected, raised.value.got) == (f"0 to {MOST - 1}", odd)


@pytest.mark.parametrize("stride", [20, 28])
def test_a_block_is_walked_by_rows_or_units(stride: int) -> None:
    rows = [(100, 91, -3), (191, 92, 4)]
    data = b"".join(struct.pack(">qiq", *row) + b"?" * (stride - 20) for row in rows)
    block = UnitBlock(7, data, stride, BlockStop.END)
    assert (block.count, [*block.rows()]) == (2, rows)
    assert [*block.units()] == [CqUnit(7, *rows[0]), CqUnit(8, *rows[1])]


@pytest.mark.parametrize(
    ("seed", "first", "second"), [(1, 0, 9), (2, 9, 0), (3, 1, 1), (4, 40, 60)]
)
def test_a_batch_takes_over_the_units_of_another(seed: int, first: int, second: int) -> None:
    """Whose queues have other numbers there; a view of a column keeps what it shows."""
    rows, others = drawn(seed, first), drawn(seed + 100, second)
    batch, other = batch_of(rows), batch_of(others)
    views = [memoryview(batch.queue_index), memoryview(batch.queue_offset), memoryview(batch.units)]
    seen = [bytes(view) for view in views]
    batch.extend(other)
    assert rows_of(batch) == rows + others
    assert batch.index_of == {queue: at for at, queue in enumerate(batch.queues)}
    assert batch.end_phy_offset == other.end_phy_offset
    assert rows_of(other) == others
    assert [bytes(view) for view in views] == seen


@pytest.mark.parametrize("seed", range(20))
def test_units_that_bring_their_offsets_leave_no_gap_or_are_named(seed: int) -> None:
    """Beside a plain loop: a queue without a unit begins anywhere, another at its end."""
    draw = random.Random(seed)
    rows = drawn(seed, 30)
    gaps = draw.sample(range(30), seed % 3)
    rows = [(key, at + (number in gaps), unit) for number, (key, at, unit) in enumerate(rows)]
    batch = batch_of(rows)
    there = {key: draw.choice([0, 0, 3]) for key in KEYS}
    wanted, gap = dict(there), -1
    for number, (key, at, _) in enumerate(rows):
        if 0 < wanted[key] < at:
            gap = number
            break
        wanted[key] = at + 1
    found = batch.following([there[queue] for queue in batch.queues])
    assert found == ([wanted[queue] for queue in batch.queues], gap)


def test_units_that_begin_an_incarnation_are_counted_for_the_queues_that_are_wanted() -> None:
    rows = [(KEYS[0], 0), (KEYS[1], 0), (KEYS[0], 1), (KEYS[2], 0), (KEYS[0], 0), (KEYS[2], 5)]
    batch = batch_of([(key, at, (100, 90, 0, 0)) for key, at in rows])
    assert batch.begins(lambda queue: queue.topic == "a") == 3
    assert batch.begins(lambda queue: queue.queue_id == 1) == 1
    assert batch.begins(lambda _: False) == UnitBatch().begins(lambda _: True) == 0


@pytest.mark.parametrize("given", [None, [0], [0, 0, 0, 0], [0, 0, None]])
def test_offsets_that_are_none_of_the_queues_are_refused(given: object) -> None:
    batch = batch_of(drawn(1, 40))
    with pytest.raises((TypeError, ValueError)):
        batch.following(given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        batch.extend(None)  # type: ignore[arg-type]
    assert len(batch) == 40


def test_topics_are_in_the_order_of_the_keys_of_their_queues() -> None:
    topics = {"", "b", "a", "ab", "é", "\udcff", "\udc80\udc80", "\ue000", "zzz", "\U0001f600"}
    wanted = sorted(topics, key=lambda topic: key_order(QueueKey(topic, 0)))
    assert topics_in_key_order(topics) == wanted
    assert wanted not in (sorted(topics), sorted(topics, key=len))
