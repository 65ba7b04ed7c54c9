"""``cqstore archive`` on Spark: the same rows, read back by Spark and Arrow; wrong use."""

import json
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cqstore.analysis.commands import archive_app
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.archived import archive, archived, in_process
from tests.kit.commands import COMMAND
from tests.kit.golden import copy_store
from tests.kit.product_tree import ROOT


def run(*words: object) -> Result:
    return CliRunner().invoke(archive_app, [*map(str, words)])


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
    assert "nothing to archive" in once_more.stderr
    assert rows_of(tmp_path / "archive") == expected
    topic = expected[0]["topic"]
    count = sum(row["topic"] == topic for row in expected)
    frame = spark.read.parquet(str(tmp_path / "archive"))
    assert {"topic", "day", "batch", "source", "body"} <= set(frame.columns)
    assert frame.where(frame.topic == topic).count() == count
    arrow = ds.dataset(tmp_path / "archive", partitioning="hive")
    assert arrow.to_table(["phy"], filter=ds.field("topic") == topic).num_rows == count


def test_nothing_new_needs_no_spark(
    golden_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_store(golden_folder / "basic-default", tmp_path / "store")
    archive(tmp_path / "archive", s=tmp_path / "store")
    monkeypatch.setattr("cqstore.analysis.commands.archive.spark_session", None)
    done = run(tmp_path / "store", "--source", "s", "--to", tmp_path / "archive")
    assert done.exit_code == 0, done.exception
    assert "nothing to archive" in done.stderr


def test_what_was_passed_over_or_lost_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cqstore.analysis.commands.archive.spark_session", lambda *_, **__: nullcontext()
    )
    monkeypatch.setattr(
        "cqstore.analysis.archive.spark_job.on_spark", lambda _, *words: in_process(*words)
    )
    root, to = tmp_path / "store", ["--source", "s", "--to", tmp_path / "archive"]
    config = StoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=2000)
    with MessageStore.open(root, config) as store:
        places = [store.put_message(Message("t", b"x")).phy_offset for _ in range(100)]
    first = root / "commitlog" / f"{0:020d}"
    data = bytearray(first.read_bytes())
    data[places[3] + 88] ^= 1  # the body
    first.write_bytes(data)
    done = run(root, *to, "--output", "json")
    assert done.exit_code == 1
    assert f"skipped: the body's CRC does not match (phy_offset {places[3]})" in done.stderr
    assert json.loads(done.stdout)[0]["messages"] == 99
    with MessageStore.open(root, config) as store:
        end = store.max_phy_offset()
        for _ in range(200):
            store.put_message(Message("t", b"x"))
        low = store.delete_expired_files(end + 2 * 4096).min_phy_offset
    done = run(root, *to)
    assert (done.exit_code, low > end) == (1, True)
    assert f"s: {low - end} bytes of the log were deleted before they were archived" in done.stderr


@pytest.mark.long
@pytest.mark.slow
def test_executors_of_their_own_write_an_archive(golden_folder: Path, tmp_path: Path) -> None:
    root = golden_folder / "basic-default"
    words = ["archive", root, "--source", "s", "--to", "made", "--master"]
    subprocess.run(
        [*COMMAND, *map(str, words), "local-cluster[2,1,1024]"], cwd=tmp_path, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=600,
    )  # fmt: skip
    archive(tmp_path / "expected", s=root)
    assert rows_of(tmp_path / "made") == rows_of(tmp_path / "expected")
