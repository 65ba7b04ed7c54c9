"""Which log files a task reads, and what is said of a damaged one."""

from pathlib import Path

import pytest

from cqstore.analysis.columns import log_columns
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.log_table import LogPart, plan_log, read_log
from cqstore.analysis.options import SourceOptions
from cqstore.store.errors import ChecksumError, CorruptionError, RefusedStoreError, StoreConfigError
from cqstore.store.service.message_store import MessageStore
from tests.migration.made_log import Made, make_log, make_store

HOUR = 3_600_000
FILE = 1024


def stamps(options: SourceOptions, rows: RowFilter) -> list[int]:
    columns = [one for one in log_columns(options) if one.name == "store_timestamp"]
    batches = [
        batch for part in plan_log(options, rows)
        for batch in read_log(options, columns, rows, part)
    ]  # fmt: skip
    assert all(len(batch) for batch in batches), "where nothing is found there is no batch"
    return [row["store_timestamp"] for batch in batches for row in batch.to_pylist()]


def requested(kind: str, value: int | list[int]) -> RowFilter:
    rows = RowFilter().taking(kind, "store_timestamp", value)
    assert rows is not None
    return rows


def hourly(root: Path, hours: list[int]) -> SourceOptions:
    make_store(root, [Made("t", 0, (1 + hour) * HOUR, b"x" * 200) for hour in hours], FILE)
    return SourceOptions(path=root, partition_bytes=1)


CLOCKS = {
    "steady": list(range(30)),
    "back by an hour": [0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10, 11],
    "far back": [20, 20, 20, 20, 20, 1, 1, 1, 1, 1, 30, 30, 30, 30],
    "back and forth within a file": [9, 1, 9, 40, 2, 9, 10, 11, 12, 3, 12, 13, 14],
    "before 1970": [5, 6, -3, -2, 7, 8, 9, -5000, 10],
}


@pytest.mark.parametrize("hours", CLOCKS.values(), ids=CLOCKS)
def test_no_row_of_the_times_that_are_asked_for_is_left_out(
    tmp_path: Path, hours: list[int]
) -> None:
    options = hourly(tmp_path, hours)
    every = [(1 + hour) * HOUR for hour in hours]
    assert stamps(options, RowFilter()) == every
    together = options.model_copy(update={"partition_bytes": 100 * FILE})
    assert len(plan_log(together, RowFilter())) == 1
    assert stamps(together, RowFilter()) == every
    for hour in {*hours, -6000, 0, 15, 50}:
        at = (1 + hour) * HOUR
        for each in (options, together):
            assert stamps(each, requested("LessThan", at)) == [one for one in every if one < at]
            assert stamps(each, requested("GreaterThan", at)) == [one for one in every if one > at]
            assert stamps(each, requested("EqualTo", at)) == [one for one in every if one == at]
    some = [20 * HOUR, 10 * HOUR, 2 * HOUR]
    assert stamps(options, requested("In", some)) == [one for one in every if one in some]


def test_where_no_time_is_asked_for_no_file_is_read(tmp_path: Path) -> None:
    options = hourly(tmp_path, [0])
    assert plan_log(options, requested("In", [])) == []
    never = requested("GreaterThan", 5).taking("LessThan", "store_timestamp", 5)
    assert never is not None
    assert plan_log(options, never) == []


def test_neighbouring_files_share_a_task_up_to_the_bytes_asked_for(tmp_path: Path) -> None:
    options = hourly(tmp_path, list(range(14)))
    single = plan_log(options, RowFilter())
    assert [part.start for part in single] == [FILE * number for number in range(len(single))]
    pairs = plan_log(options.model_copy(update={"partition_bytes": 2 * FILE}), RowFilter())
    assert pairs[0] == LogPart(0, 2 * FILE)
    assert pairs[-1].end == single[-1].end
    assert len(pairs) == (len(single) + 1) // 2


def test_files_are_left_out_by_the_places_that_are_asked_for(tmp_path: Path) -> None:
    options = hourly(tmp_path, list(range(14)))
    parts = plan_log(options, RowFilter())
    for number, part in enumerate(parts):
        for kind, place, left in [
            ("GreaterThanOrEqual", part.start, parts[number:]),
            ("GreaterThan", part.end - 1, parts[number + 1 :]),
            ("LessThan", part.start, parts[:number]),
            ("LessThanOrEqual", part.start, parts[: number + 1]),
            ("EqualTo", part.start, parts),  # an equality is no span: rows are chosen one by one
        ]:
            rows = RowFilter().taking(kind, "phy_offset", place)
            assert rows is not None
            if kind == "EqualTo":
                assert len(stamps(options, rows)) == 1
            else:
                assert plan_log(options, rows) == left
    both = RowFilter().taking("GreaterThan", "phy_offset", parts[2].start)
    assert both is not None
    both = both.taking("LessThan", "phy_offset", parts[2].end)
    assert both is not None
    assert plan_log(options, both) == [parts[2]]


def test_a_file_that_was_made_ahead_is_no_task(tmp_path: Path) -> None:
    offsets = make_log(tmp_path, [Made("t", 0, HOUR, b"x" * 200) for _ in range(9)], FILE)
    last = max((tmp_path / "commitlog").iterdir())
    last.write_bytes(bytes(FILE))
    MessageStore.open(tmp_path, housekeeping=False).close()
    last.write_bytes(bytes(FILE))  # an opening removes it
    parts = plan_log(SourceOptions(path=tmp_path, partition_bytes=1), RowFilter())
    assert [part.start for part in parts] == list(range(0, int(last.name), FILE))
    assert parts[-1].end == int(last.name)
    kept = sum(offset < int(last.name) for offset in offsets)
    assert len(stamps(SourceOptions(path=tmp_path), RowFilter())) == kept


def test_damage_in_the_log_is_named_with_its_place(tmp_path: Path) -> None:
    offsets = make_store(tmp_path, [Made("t", 0, HOUR, b"x" * 200) for _ in range(9)], FILE)
    options = SourceOptions(path=tmp_path)
    file = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[offsets[1] + 150] ^= 1
    file.write_bytes(data)
    assert len(stamps(options, RowFilter())) == 9
    checked = options.model_copy(update={"crc": True})
    with pytest.raises(ChecksumError, match=f"phy_offset {offsets[1]}"):
        stamps(checked, RowFilter())
    data[offsets[2] + 4] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match=f"phy_offset {offsets[2]}"):
        stamps(options, RowFilter())


@pytest.mark.parametrize("fill", [False, True])
def test_what_is_no_store_is_refused(tmp_path: Path, fill: bool) -> None:  # noqa: FBT001
    root = tmp_path / "root"
    if fill:
        root.mkdir()
        (root / "letter.txt").write_text("no store")
    with pytest.raises(RefusedStoreError, match="no store here"):
        SourceOptions(path=root).check_root()
    with pytest.raises(RefusedStoreError, match="no store here"):
        plan_log(SourceOptions(path=root), RowFilter())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "needs the root of a store"),
        ({"paths": '["a","b"]'}, "takes exactly one path"),
        ({"path": "a", "boddy": "true"}, "boddy"),
        ({"path": "a", "crc": "perhaps"}, "crc"),
        ({"path": "a", "partition_units": "0"}, "partition_units"),
    ],
)
def test_options_that_make_no_sense_are_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(StoreConfigError, match=sentence):
        SourceOptions.parse(given)
