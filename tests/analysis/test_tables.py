"""The tables without Spark: every row of every golden store, and any filters on them."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.analysis.columns import log_columns, unit_columns
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.log_table import plan_log, read_log
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.queue_table import plan_queues, read_queues
from cqstore.store.service.message_store import MessageStore
from tests.analysis.oracle import COMPARED, Row, log_rows, time_of, unit_rows
from tests.kit.golden import CLEAN, NAMES, each_kind, load_dump
from tests.kit.tree import unchanged

Condition = tuple[str, str, Any]
_FILTERED = ["special-default", "basic-defaultRocksDB"]


def read(table: str, rows: RowFilter, **given: Any) -> list[Row]:
    """Return the table's rows, as planned and read task by task."""
    options = SourceOptions.model_validate(given)
    found: list[Row] = []
    if table == "log":
        columns = log_columns(options)
        for part in plan_log(options, rows):
            for batch in read_log(options, columns, rows, part):
                found += batch.to_pylist(maps_as_pydicts="strict")
    else:
        columns = unit_columns(options)
        for queues in plan_queues(options, rows):
            for batch in read_queues(options, columns, rows, queues):
                found += batch.to_pylist()
    return found


@pytest.mark.parametrize("name", each_kind(NAMES))
def test_the_log_is_what_rocketmq_read(golden_folder: Path, name: str) -> None:
    with unchanged(golden_folder / name):
        found = read("log", RowFilter(), path=golden_folder / name, crc=True)
        assert found == log_rows(load_dump(name))


@pytest.mark.parametrize(
    ("name", "units"),
    [*((name, 1_000_000) for name in CLEAN), ("special-default", 70), ("ext-default", 50)],
)
def test_the_queues_are_what_rocketmq_read(golden_folder: Path, name: str, units: int) -> None:
    root = golden_folder / name
    with unchanged(root):
        found = read("cq", RowFilter(first_stamp=0), path=root, store_timestamp=True,
                     partition_units=units)  # fmt: skip
        assert found == unit_rows(load_dump(name))


def test_a_unit_without_its_record_has_no_time(golden_folder: Path) -> None:
    """The torn store's last record is no whole one; its unit was written nevertheless."""
    options = {"path": golden_folder / "torn-default", "store_timestamp": True}
    every = read("cq", RowFilter(first_stamp=0), **options)
    records = {row["phy_offset"] for row in log_rows(load_dump("torn-default"))}
    (torn,) = [row for row in every if row["phy_offset"] not in records]
    assert (torn["store_timestamp"], torn["store_time"]) == (None, None)
    timed = [row for row in every if row is not torn]
    conditions: list[list[Condition]] = [
        [("IsNotNull", "store_time", None)], [("IsNotNull", "store_timestamp", None)],
        [("LessThan", "store_timestamp", 1 << 62)], [("GreaterThan", "store_time", time_of(0))],
    ]  # fmt: skip
    for one in conditions:
        assert read("cq", _filter(one, 0), **options) == timed


@pytest.mark.parametrize("name", ["special-combine", "basic-combine"])
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_either_half_of_a_combined_store_is_read(
    golden_folder: Path, name: str, backend: str
) -> None:
    found = read("cq", RowFilter(first_stamp=0), path=golden_folder / name, backend=backend,
                 store_timestamp=True)  # fmt: skip
    assert found == unit_rows(load_dump(name))


@pytest.mark.parametrize("name", ["basic-default", "special-default", "propcrc-default"])
def test_bodies_are_the_stores(golden_folder: Path, name: str) -> None:
    found = read("log", RowFilter(), path=golden_folder / name, body=True)
    with MessageStore.open(golden_folder / name, read_only=True, housekeeping=False) as store:
        for row in found:
            assert row["body"] == store.message_by_offset(row["phy_offset"]).body
    assert any(row["sys_flag"] & 1 for row in found) is (name == "special-default")


def _values(rows: Sequence[Row], column: str) -> st.SearchStrategy[Any]:
    there = st.sampled_from(sorted({row[column] for row in rows}))
    if column == "topic":
        return there | st.just("no such topic")
    if column == "store_time":
        return there.flatmap(lambda one: st.integers(-1500, 1500).map(
            lambda micros: one + timedelta(microseconds=micros)))  # fmt: skip
    return there | there.map(lambda one: one + 1) | st.sampled_from([-1, 0, 1 << 62, -(1 << 63)])


def _conditions(rows: Sequence[Row]) -> st.SearchStrategy[list[Condition]]:
    def of(column: str) -> st.SearchStrategy[Condition]:
        values = _values(rows, column)
        kinds = sorted(set(COMPARED) - {"In", "IsNotNull", "StringStartsWith"})
        several = st.lists(values | st.none(), max_size=3)
        choices: list[st.SearchStrategy[Condition]] = [
            st.tuples(st.just("In"), st.just(column), several),
            st.just(("IsNotNull", column, None)),
        ]
        if column == "topic":
            starts = values.map(lambda one: one[:2])
            choices.append(st.tuples(st.just("StringStartsWith"), st.just(column), starts))
            choices.append(st.tuples(st.just("EqualTo"), st.just(column), values))
        else:
            choices.append(st.tuples(st.sampled_from(kinds), st.just(column), values))
        return st.one_of(choices)

    names = ["topic", "queue_id", "queue_offset", "phy_offset", "size", "store_timestamp",
             "store_time"]  # fmt: skip
    return st.lists(st.sampled_from(names).flatmap(of), min_size=1, max_size=3)


def _fulfils(row: Row, conditions: Sequence[Condition]) -> bool:
    return all(COMPARED[kind](row[column], value) for kind, column, value in conditions)


def _filter(conditions: Sequence[Condition], first_stamp: int) -> RowFilter:
    rows = RowFilter(first_stamp=first_stamp)
    for condition in conditions:
        taken = rows.taking(*condition)
        assert taken is not None, condition
        rows = taken
    return rows


@pytest.mark.parametrize("name", _FILTERED)
def test_any_filter_on_the_log_leaves_the_rows_that_fulfil_it(
    golden_folder: Path, name: str
) -> None:
    every = log_rows(load_dump(name))

    @given(_conditions(every))
    def holds(conditions: list[Condition]) -> None:
        rows = _filter(conditions, RowFilter().first_stamp)
        found = read("log", rows, path=golden_folder / name, partition_bytes=1)
        expected = [row["phy_offset"] for row in every if _fulfils(row, conditions)]
        assert [row["phy_offset"] for row in found] == expected

    holds()


@pytest.mark.parametrize("name", _FILTERED)
def test_any_filter_on_the_queues_leaves_the_rows_that_fulfil_it(
    golden_folder: Path, name: str
) -> None:
    every = unit_rows(load_dump(name))

    @given(_conditions(every))
    def holds(conditions: list[Condition]) -> None:
        found = read("cq", _filter(conditions, 0), path=golden_folder / name, store_timestamp=True)
        assert found == [row for row in every if _fulfils(row, conditions)]

    holds()


@pytest.mark.parametrize(
    "condition",
    [
        ("EqualTo", "tags", "a"),
        ("EqualNullSafe", "topic", None),
        ("StringContains", "topic", "a"),
        ("EqualTo", "topic", 3),
        ("GreaterThan", "topic", "a"),
        ("GreaterThan", "queue_id", 1.5),
        ("EqualTo", "queue_id", True),
        ("IsNull", "store_time", None),
        ("IsNotNull", "tags", None),
        ("GreaterThan", "store_time", 5),
    ],
)
def test_what_is_not_understood_is_left_to_spark(condition: Condition) -> None:
    assert RowFilter().taking(*condition) is None
