"""The data sources inside Spark: the same rows with filters pushed down and without, and errors."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cqstore.analysis.failures import spark_failures
from cqstore.analysis.spark_sources import register
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError, StoreError
from tests.analysis.oracle import Row, log_rows, unit_rows
from tests.kit.golden import load_dump
from tests.migration.made_log import Made, make_store

pytestmark = pytest.mark.slow
Predicate = Callable[[Row], bool]
NAME = "special-default"


@pytest.fixture(scope="module")
def sources(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def load(spark: SparkSession, kind: str, root: Path, **options: Any) -> DataFrame:
    return spark.read.format(f"rocketmq_{kind}").options(**options).load(str(root))


def rows_of(frame: DataFrame) -> list[Row]:
    return list(frame.toArrow().to_pylist(maps_as_pydicts="strict"))


def by_place(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["phy_offset"], row["topic"], row["queue_id"]))


def _cases(rows: list[Row]) -> list[tuple[str, Predicate]]:
    """Return conditions in SQL, and the same in Python."""
    middle = sorted(row["store_timestamp"] for row in rows)[len(rows) // 2]
    place = sorted(row["phy_offset"] for row in rows)[len(rows) // 3]
    topic = rows[0]["topic"]
    instant = datetime.fromisoformat(str(rows[len(rows) // 2]["store_time"]))
    text = instant.strftime("%Y-%m-%d %H:%M:%S.%f")
    return [
        (f"topic = '{topic}'", lambda row: row["topic"] == topic),
        (f"topic <> '{topic}' AND queue_id < 2", lambda row: row["topic"] != topic
            and row["queue_id"] < 2),
        (f"topic IN ('{topic}', 'none', NULL)", lambda row: row["topic"] == topic),
        ("topic LIKE 'o%'", lambda row: row["topic"].startswith("o")),
        (f"topic = '{topic}' OR queue_id = 1", lambda row: row["topic"] == topic
            or row["queue_id"] == 1),
        ("queue_offset > 9223372036854775806", lambda _: False),
        (f"phy_offset >= {place} AND size % 2 = 0", lambda row: row["phy_offset"] >= place
            and row["size"] % 2 == 0),
        (f"store_timestamp < {middle}", lambda row: row["store_timestamp"] < middle),
        (f"store_time <= timestamp'{text}'", lambda row: row["store_time"] <= instant),
        (f"store_time > timestamp'{text[:-1]}1'", lambda row: row["store_time"] > instant),
        ("store_time IS NULL", lambda _: False),
    ]  # fmt: skip


@pytest.mark.parametrize("every_nth", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["commitlog", "cq"])
def test_rows_are_the_same_pushed_down_or_not(
    sources: SparkSession, golden_folder: Path, kind: str, every_nth: int
) -> None:
    dump = load_dump(NAME)
    every = by_place(log_rows(dump) if kind == "commitlog" else unit_rows(dump))
    options = {} if kind == "commitlog" else {"store_timestamp": True, "partition_units": 200}
    plain = load(sources, kind, golden_folder / NAME, **options)
    assert by_place(rows_of(plain)) == every
    for number, (condition, holds) in enumerate(_cases(every)[::every_nth]):
        expected = [row for row in every if holds(row)]
        pushed = load(sources, kind, golden_folder / NAME, pushdown=True, **options)
        assert by_place(rows_of(pushed.where(condition))) == expected, condition
        if number % 4 == 0:  # this reader is handed no filter: it is Spark that filters
            assert by_place(rows_of(plain.where(condition))) == expected, condition


def test_a_frame_can_be_used_again_and_twice_in_a_query(
    sources: SparkSession, golden_folder: Path
) -> None:
    every = load_dump(NAME)["messages"]
    frame = load(sources, "commitlog", golden_folder / NAME)
    first, second = frame.where("queue_id = 1"), frame.where("queue_id = 0")
    counts = [sum(row["queueId"] == queue_id for row in every) for queue_id in (1, 0)]
    assert [first.count(), second.count(), frame.count()] == [*counts, len(every)]
    assert first.union(second).count() == sum(counts)


def test_what_is_pushed_down_spark_need_not_filter(
    sources: SparkSession, golden_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = load(sources, "cq", golden_folder / NAME, pushdown=True)
    condition = "topic = 'a' AND queue_offset > 3 AND phy_offset < 9"
    frame.where(condition).explain()
    assert "Filter" not in capsys.readouterr().out.replace("RuntimeFilters", "")
    load(sources, "cq", golden_folder / NAME).where(condition).explain()
    assert "Filter (" in capsys.readouterr().out


def test_columns_can_be_chosen(sources: SparkSession, golden_folder: Path) -> None:
    reader = sources.read.format("rocketmq_commitlog").schema("size int, topic string")
    found = rows_of(reader.load(str(golden_folder / NAME)))
    expected = log_rows(load_dump(NAME))
    assert found == [{"size": row["size"], "topic": row["topic"]} for row in expected]


@pytest.mark.parametrize(
    ("kind", "options", "schema", "error", "sentence"),
    [
        ("commitlog", {"boddy": True}, None, StoreConfigError, "boddy"),
        ("cq", {}, "size string", StoreConfigError, "'size': expected int, found string"),
        ("cq", {}, "weight int", StoreConfigError, "no column 'weight'"),
        ("cq", {"backend": "nope"}, None, StoreConfigError, "no backend 'nope'"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    sources: SparkSession, golden_folder: Path, kind: str, options: dict[str, Any],
    schema: str | None, error: type[StoreError], sentence: str,
) -> None:  # fmt: skip
    reader = sources.read.format(f"rocketmq_{kind}").options(**options)
    with pytest.raises(error, match=sentence) as caught, spark_failures():
        (reader.schema(schema) if schema else reader).load(str(golden_folder / NAME)).count()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, PySparkException)


def test_no_store_is_one_sentence(sources: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="no store here") as caught, spark_failures():
        load(sources, "commitlog", tmp_path / "nope")
    assert "\n" not in str(caught.value)


def test_damage_that_a_task_meets_is_one_sentence(sources: SparkSession, tmp_path: Path) -> None:
    offsets = make_store(tmp_path, [Made("t", 0, 1_000_000) for _ in range(5)])
    file = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[offsets[3] + 4] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptionError, match=f"phy_offset {offsets[3]}") as caught:  # noqa: SIM117
        with spark_failures():
            load(sources, "commitlog", tmp_path).count()
    assert "\n" not in str(caught.value)
