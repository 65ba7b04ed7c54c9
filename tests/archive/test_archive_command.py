"""``cqstore archive`` on Spark: the same rows, read back by Spark and Arrow; wrong use."""

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from analysis.command import archiving
from store.errors import RefusedStoreError, StoreConfigError
from tests.kit.archived import archive, archived
from tests.kit.golden import copy_store


def run(*words: object) -> Result:
    return CliRunner().invoke(archiving, [*map(str, words)])


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return sorted(archived(folder), key=lambda row: (row["source"], row["phy"], row["queueOffset"]))


@pytest.mark.slow
def test_spark_writes_the_same_and_reads_it_back(
    spark: SparkSession, golden_folder: Path, tmp_path: Path
) -> None:
    one, other = golden_folder / "special-combine", golden_folder / "basic-default"
    to, again = ["--to", tmp_path / "archive"], ["--source", "x", "--source", "y"]
    done = run(one, other, *again, *to, "--output", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    archive(tmp_path / "expected", x=one, y=other)
    expected = rows_of(tmp_path / "expected")
    assert rows_of(tmp_path / "archive") == expected
    sums = {each["source"]: each["messages"] for each in json.loads(done.stdout)}
    assert sums == {name: sum(row["source"] == name for row in expected) for name in "xy"}
    once_more = run(one, other, *again, *to)
    assert "nothing is new" in once_more.stderr
    assert rows_of(tmp_path / "archive") == expected
    topic = expected[0]["topic"]
    count = sum(row["topic"] == topic for row in expected)
    frame = spark.read.parquet(str(tmp_path / "archive"))
    assert frame.count() == len(expected)
    assert {"topic", "day", "batch", "source", "body"} <= set(frame.columns)
    assert frame.where(frame.topic == topic).count() == count
    arrow = ds.dataset(tmp_path / "archive", partitioning="hive")
    assert arrow.to_table(["phy"], filter=ds.field("topic") == topic).num_rows == count


def test_wrong_use_is_refused_before_anything_is_made(golden_folder: Path, tmp_path: Path) -> None:
    root, to = golden_folder / "basic-default", ["--to", tmp_path / "archive"]
    for words in ([], [root], [root, "--source", "a", "--source", "b", *to]):
        assert run(*words).exit_code == 2
    twice = run(root, root, *to)
    assert isinstance(twice.exception, StoreConfigError)
    assert "two sources are called" in str(twice.exception)
    assert isinstance(run(tmp_path, *to).exception, RefusedStoreError)
    assert isinstance(run(root, "--to", root).exception, RefusedStoreError)
    assert list(tmp_path.iterdir()) == []


def test_nothing_new_needs_no_spark(
    golden_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_store(golden_folder / "basic-default", tmp_path / "store")
    archive(tmp_path / "archive", s=tmp_path / "store")
    monkeypatch.setattr("analysis.archive.verb.spark_session", None)
    done = run(tmp_path / "store", "--source", "s", "--to", tmp_path / "archive")
    assert done.exit_code == 0, done.exception
    assert "nothing is new" in done.stderr
