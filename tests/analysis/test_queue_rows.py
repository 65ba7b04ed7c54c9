"""The queues as a table, against queues that are lists: holes, addresses, batches, times."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cqstore.analysis.columns import unit_columns
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.queue_table import plan_queues, read_queues
from cqstore.store.log.record_times import NO_TIME
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import PACKED_PREFIX, QUEUE_UNIT, BlockStop, QueueKey, UnitBlock
from tests.analysis.oracle import time_of
from tests.kit.queue_of import QueueOf

LOG = (100, 1000)
BATCH = 3
CODES = {-(1 << 31): -(1 << 31), -(1 << 31) - 1: 77, -(1 << 62): None, -(1 << 63): 0, 5: 5}
"""What a tags code in a unit stands for; ``None``: it leads nowhere."""
KEYS = [QueueKey("b", 0), QueueKey("b", 2), QueueKey("aa", 1), QueueKey("\udcff", 0)]
Unit = tuple[int, int, int, int]
"""Phy offset, size, tags code, store time."""


def stamp_in_log(phy_offset: int) -> int:
    return phy_offset - 100 if LOG[0] <= phy_offset < LOG[1] else -1


class Lists:
    """A store whose queues are dicts of units by queue offset, of one stride."""

    def __init__(self, held: dict[QueueKey, dict[int, Unit]], stride: int) -> None:
        self.held = held
        self.stride = stride
        self.queues = self.commit_log = self

    # ---- the queues

    def __call__(self, topic: str | None) -> Iterator[QueueKey]:
        return (key for key in reversed(self.held) if topic in {None, key.topic})

    def queue_type(self, topic: str) -> QueueType:
        return QueueType.BATCH if topic == "aa" else QueueType.SIMPLE

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    def min_offset(self, *key: Any) -> int:
        return min(self.held[QueueKey(*key)], default=4)

    def max_offset(self, *key: Any) -> int:
        return max(self.held[QueueKey(*key)], default=3) + 1

    def read_units(self, topic: str, queue_id: int, offset: int, count: int) -> UnitBlock:
        assert topic != "aa", "a batch queue has no such units"
        assert 0 < count <= BATCH
        held = self.held[QueueKey(topic, queue_id)]
        some: list[bytes] = []
        while len(some) < count and offset + len(some) in held:
            unit = held[offset + len(some)]
            some.append(QUEUE_UNIT.pack(QUEUE_UNIT.record(*unit))[: self.stride])
        at = offset + len(some)
        behind = [each for each in held if each >= at]
        stop, hole = BlockStop.LIMIT, None
        if len(some) < count:
            stop = BlockStop.HOLE if behind else BlockStop.END
            hole = range(at, min(behind)) if behind else None
        return UnitBlock(offset, b"".join(some), self.stride, stop, hole)

    def resolve_tags_code(self, _: str, __: int, code: int) -> int | None:
        return CODES[code]

    def iterate(self, topic: str, queue_id: int, first: int) -> Iterator[Any]:
        """A batch queue begins with the unit that holds ``first``, which may begin before it."""
        for offset, unit in sorted(self.held[QueueKey(topic, queue_id)].items()):
            if offset >= first - 1:
                yield SimpleNamespace(
                    queue_offset=offset, phy_offset=unit[0], size=unit[1],
                    tags_code=CODES[unit[2]], batch_num=offset + 2,
                )  # fmt: skip

    # ---- the log

    def min_phy_offset(self) -> int:
        return LOG[0]

    def max_phy_offset(self) -> int:
        return LOG[1]

    def known_timestamps(self, phy: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[Any]:
        assert size.tolist() == [at + 1 for at in phy.tolist()]
        stamps = [stamp_in_log(at) for at in phy.tolist()]
        return np.array([NO_TIME if at == -1 else at for at in stamps], np.int64)


class _Queues:
    """So that ``queues(topic)`` is a call and the rest attributes."""

    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    def __getattr__(self, name: str) -> Any:
        return self._lists if name == "queues" else getattr(self._lists, name)


def options_of(lists: Lists, units: int, *, timed: bool) -> SourceOptions:
    @contextmanager
    def opened() -> Iterator[Any]:
        components = SimpleNamespace(queues=_Queues(lists), log=lists)
        yield SimpleNamespace(_components=components)

    given_options = SimpleNamespace(open_store=opened, partition_units=units, store_timestamp=timed)
    return cast("SourceOptions", given_options)


def expected(lists: Lists, *, timed: bool) -> list[dict[str, Any]]:
    rows = []
    for key in sorted(lists.held, key=lambda one: (len(one.topic.encode("utf-8", "replace")),
                                                   one.topic.encode("utf-8", "surrogateescape"),
                                                   one.queue_id)):  # fmt: skip
        for offset, (phy, size, code, own) in sorted(lists.held[key].items()):
            batch = key.topic == "aa"
            row = {
                "topic": key.topic.encode("utf-8", "replace").decode(), "queue_id": key.queue_id,
                "queue_offset": offset, "phy_offset": phy, "size": size, "tags_code": CODES[code],
                "batch_num": offset + 2 if batch else 1,
            }  # fmt: skip
            if timed:
                there = LOG[0] <= phy < LOG[1]
                kept = not batch and lists.stride == QUEUE_UNIT.size
                stamp = (own if kept else stamp_in_log(phy)) if there else None
                row |= {"store_timestamp": stamp,
                        "store_time": None if stamp is None else time_of(stamp)}  # fmt: skip
            rows.append(row)
    return rows


PHYS = st.sampled_from([99, 100, 101, 999, 1000, 500])
UNITS = st.builds(
    lambda phy, code, own: (phy, phy + 1, code, own), PHYS, st.sampled_from(sorted(CODES)),
    st.sampled_from([0, 1, 1_700_000_000_000]),
)  # fmt: skip
HELD = st.dictionaries(
    st.sampled_from(KEYS), st.dictionaries(st.integers(2, 12), UNITS, max_size=8), max_size=4
)


@given(
    held=HELD, stride=st.sampled_from([PACKED_PREFIX, QUEUE_UNIT.size]), timed=st.booleans(),
    units=st.sampled_from([1, 2, 5, 100]),
    requested=st.none() | st.tuples(st.sampled_from(["queue_offset", "queue_id"]),
                                st.sampled_from(["LessThan", "GreaterThanOrEqual", "EqualTo"]),
                                st.integers(0, 12)),
)  # fmt: skip
def test_rows_are_those_of_the_lists_however_they_are_cut(
    held: dict[QueueKey, dict[int, Unit]],
    stride: int,
    units: int,
    requested: tuple[str, str, int] | None,
    *,
    timed: bool,
) -> None:
    lists = Lists(held, stride)
    rows: RowFilter | None = RowFilter(first_stamp=0)
    wanted = expected(lists, timed=timed)
    if requested is not None:
        column, kind, value = requested
        assert rows is not None
        rows = rows.taking(kind, column, value)
        tests = {"LessThan": int.__lt__, "GreaterThanOrEqual": int.__ge__, "EqualTo": int.__eq__}
        wanted = [row for row in wanted if tests[kind](row[column], value)]
    assert rows is not None
    options = options_of(lists, units, timed=timed)
    columns = unit_columns(SourceOptions(path=Path("root"), store_timestamp=timed))
    found: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patched:
        for module in ("unit_rows", "unit_columns"):
            patched.setattr(f"cqstore.analysis.{module}.BATCH_ROWS", BATCH)
        parts = plan_queues(options, rows)
        for part in parts:
            sizes = [len(batch) for batch in read_queues(options, columns, rows, part)]
            assert all(0 < size < 4 * BATCH for size in sizes)
            for batch in read_queues(options, columns, rows, part):
                found += batch.to_pylist()
    assert found == wanted
    spans = [[end - first for _, first, end in part.spans()] for part in parts]
    assert all(0 < one <= units for part in spans for one in part)
    assert all(sum(part) == units for part in spans[:-1])
    assert all(part for part in spans)


def test_a_batch_is_full_before_the_next_one_begins() -> None:
    units: dict[int, Unit] = dict.fromkeys(range(2, 12), (500, 501, 5, 0))
    lists = Lists({KEYS[0]: units, KEYS[1]: {4: units[2]}}, PACKED_PREFIX)
    options = options_of(lists, 100, timed=False)
    columns = unit_columns(SourceOptions(path=Path("root")))
    with pytest.MonkeyPatch.context() as patched:
        for module in ("unit_rows", "unit_columns"):
            patched.setattr(f"cqstore.analysis.{module}.BATCH_ROWS", BATCH)
        (part,) = plan_queues(options, RowFilter())
        assert [len(one) for one in read_queues(options, columns, RowFilter(), part)] == [
            3,
            3,
            3,
            2,
        ]
