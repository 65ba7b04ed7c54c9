"""Which log files a task reads, and what is said of a damaged one."""

from pathlib import Path

import pytest

from cqstore.analysis.columns import log_columns
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.log_table import LogPart, plan_log, read_log
from cqstore.analysis.options import SourceOptions
from cqstore.store.errors import ChecksumError, CorruptionError, RefusedStoreError, StoreConfigError
from cqstore.store.log.commit_log import CommitLog
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


def asked(kind: str, value: int | list[int]) -> RowFilter:
    rows = RowFilter().taking(kind, "store_timestamp", value)
    assert rows is not None
    return rows


def hourly(root: Path, hours: list[int]) -> SourceOptions:
    make_store(root, [Made("t", 0, (1 + hour) * HOUR, b"x" * 200) for hour in hours], FILE)
    return SourceOptions(path=root, partition_bytes=1)


def test_files_outside_the_times_are_left_out_and_no_row_is(tmp_path: Path) -> None:
    options = hourly(tmp_path, list(range(30)))
    every = stamps(options, RowFilter())
    assert every == [(1 + hour) * HOUR for hour in range(30)]
    together = options.model_copy(update={"partition_bytes": 100 * FILE})
    assert len(plan_log(together, RowFilter())) == 1
    assert stamps(together, RowFilter()) == every
    whole = plan_log(options, RowFilter())
    for kind in ("LessThan", "GreaterThan", "EqualTo"):
        rows = asked(kind, 12 * HOUR)
        kept = {"LessThan": every[:11], "GreaterThan": every[12:], "EqualTo": every[11:12]}
        assert stamps(options, rows) == kept[kind]
        parts = plan_log(options, rows)
        assert (parts[0] == whole[0]) == (kind == "LessThan"), "those before are left out"
        assert (parts[-1] == whole[-1]) == (kind == "GreaterThan"), "those behind are left out"


def test_files_between_the_first_and_the_last_of_several_times_are_read(tmp_path: Path) -> None:
    options = hourly(tmp_path, list(range(30)))
    rows = asked("In", [20 * HOUR, 10 * HOUR, 15 * HOUR])
    assert stamps(options, rows) == [10 * HOUR, 15 * HOUR, 20 * HOUR]
    parts, whole = plan_log(options, rows), plan_log(options, RowFilter())
    assert whole[0].start < parts[0].start < parts[-1].start < whole[-1].start


def test_where_no_time_is_asked_for_no_file_is_read(tmp_path: Path) -> None:
    assert plan_log(hourly(tmp_path, [0]), asked("In", [])) == []


def test_times_are_looked_up_only_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = hourly(tmp_path, list(range(3)))
    looked = list[Path]()
    monkeypatch.setattr(CommitLog, "first_record", lambda _, file: looked.append(file.path))
    by_place = RowFilter().taking("GreaterThanOrEqual", "phy_offset", 0)
    assert by_place is not None
    for rows in (RowFilter(), by_place):
        plan_log(options, rows)
        assert looked == []
    plan_log(options, asked("GreaterThan", HOUR))
    assert len(looked) == 1, "what has no first record says nothing of the times"


def test_a_clock_put_back_by_an_hour_loses_no_row(tmp_path: Path) -> None:
    hours = [0, 1, 2, 3, 4, 5, 6, 7, 8, 7, 8, 9, 10, 11]
    options = hourly(tmp_path, hours)
    for hour in range(13):
        rows = asked("EqualTo", hour * HOUR)
        assert len(stamps(options, rows)) == [1 + one for one in hours].count(hour)


def test_times_that_jump_back_far_leave_no_file_out(tmp_path: Path) -> None:
    options = hourly(tmp_path, [20, 20, 20, 20, 20, 1, 1, 1, 1, 1, 30, 30, 30, 30])
    assert len(stamps(options, asked("LessThan", 10 * HOUR))) == 5


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
        ({}, "which store"),
        ({"paths": '["a","b"]'}, "one store a load"),
        ({"path": "a", "boddy": "true"}, "boddy"),
        ({"path": "a", "crc": "perhaps"}, "crc"),
        ({"path": "a", "partition_units": "0"}, "partition_units"),
    ],
)
def test_options_that_make_no_sense_are_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(StoreConfigError, match=sentence):
        SourceOptions.parse(given)
