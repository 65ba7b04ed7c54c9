"""Tasks in processes of this machine, and what is asked of Spark: order, errors, ends."""

import errno
import json
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyspark
import pytest

from cqstore.migration import tasks
from cqstore.migration.tasks import NO_SPARK, run_tasks
from cqstore.store.concurrency import processes
from cqstore.store.concurrency.task_worker import guarded, unwrap
from cqstore.store.errors import CorruptionError, DiskFullError, StoreConfigError, StoreError
from tests.kit.tasks import crash, damaged, double, wait

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_results_come_in_the_order_of_the_items() -> None:
    items = ["a", "", "two\nlines", "é\udcff", *map(str, range(9))]
    ticks: list[int] = []
    assert run_tasks(double, items, NO_SPARK, ticks.append) == [2 * one for one in items]
    assert ticks


@pytest.mark.slow
def test_an_error_of_the_stores_comes_back_as_it_was() -> None:
    with pytest.raises(CorruptionError, match="a unit is odd") as caught:
        run_tasks(damaged, ["good", "bad", "good"], NO_SPARK)
    assert (caught.value.path, caught.value.phy_offset) == (Path("some/file"), 7)
    assert caught.value.expected == 1


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_a_few_times(tmp_path: Path) -> None:
    items = [
        json.dumps({"file": str(tmp_path / str(crashes)), "crashes": crashes}) for crashes in (0, 3)
    ]
    assert run_tasks(crash, items, NO_SPARK) == ["1", "4"]
    with pytest.raises(StoreError, match="ended early in each of 4 attempts"):
        run_tasks(crash, [json.dumps({"file": str(tmp_path / "ever"), "crashes": 99})], NO_SPARK)
    assert (tmp_path / "ever").stat().st_size == 4


@pytest.mark.slow
def test_what_is_cancelled_ends_at_once(tmp_path: Path) -> None:
    def tick(_: int) -> None:
        if any(tmp_path.iterdir()):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(wait, [str(tmp_path)] * 9, NO_SPARK, tick)
    for path in tmp_path.iterdir():
        assert not Path(f"/proc/{path.name}").exists()


@pytest.mark.slow
def test_processes_are_lent_out_again_and_none_is_left_or_started_after_the_end() -> None:
    workers = processes._Workers(double)
    assert [workers.run(item) for item in ("a", "b")] == [("ok", "aa"), ("ok", "bb")]
    (process,) = workers._started
    workers.stop()
    assert process.returncode == -signal.SIGKILL
    assert all(pipe is not None and pipe.closed for pipe in (process.stdin, process.stdout))
    late = processes._Workers(double)
    late.stop()
    with pytest.raises(StoreError, match="the tasks were cancelled"):
        late.run("c")
    assert late._started == []


def test_without_items_nothing_is_started() -> None:
    assert run_tasks(double, [], "spark://host.invalid:7077") == []
    for items in ([], ["a"]):
        with pytest.raises(StoreConfigError, match="invalid Spark master 'no master at all'"):
            run_tasks(double, items, "no master at all")
    alone = cast("Callable[[str], str]", lambda item: item)
    alone.__module__ = "__main__"
    with pytest.raises(StoreConfigError, match="expected a module that can be imported"):
        run_tasks(alone, ["a"], NO_SPARK)


def fills(path: str) -> str:
    if path:
        with Path(path).open("wb") as file:
            file.write(b"x")
    raise OSError(errno.ENOSPC, "No space left on device", path or None)


def test_a_full_disk_ends_a_task_at_the_first_try(tmp_path: Path) -> None:
    """In any task: what cannot pass is not tried again, and is no traceback."""
    for path, place in ((str(tmp_path / "x"), tmp_path / "x"), ("", Path(tempfile.gettempdir()))):
        kind, text = guarded(fills, path)
        with pytest.raises(DiskFullError, match="cannot run a task") as found:
            unwrap(kind, text)
        assert found.value.path == place
    with pytest.raises(IsADirectoryError):
        guarded(fills, str(tmp_path))


# ---- Spark


class _Spark:
    """Notes what is asked of its context."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.calls: list[tuple[Any, ...]] = []
        self.cancelled = threading.Event()

    def setJobGroup(  # noqa: N802 - Spark's name
        self,
        group: str,
        description: str,
        *,
        interruptOnCancel: bool,  # noqa: N803
    ) -> None:
        self.calls.append(("set", group, bool(description), interruptOnCancel))

    def statusTracker(self) -> "_Spark":  # noqa: N802
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802
        return [7] if group == "cqstore" else []

    def getJobInfo(self, number: int) -> SimpleNamespace | None:  # noqa: N802
        return SimpleNamespace(stageIds=[3, 4]) if number == 7 else None

    def getStageInfo(self, number: int) -> SimpleNamespace | None:  # noqa: N802
        return SimpleNamespace(numCompletedTasks=2) if number == 3 else None

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.calls.append(("cancel", group))
        self.cancelled.set()


def on_spark(
    monkeypatch: pytest.MonkeyPatch, collect: Callable[[_Spark], Any], tick: Callable[[int], object]
) -> tuple[_Spark, Callable[[], list[tuple[str, str]]]]:
    spark = _Spark()
    monkeypatch.setattr(pyspark, "InheritableThread", threading.Thread)
    monkeypatch.setattr(tasks, "POLL_SECONDS", 0.01)

    def collected(*_: object) -> Any:
        spark.calls.append(("collect",))
        return collect(spark)

    monkeypatch.setattr(tasks, "_collect", collected)
    session = cast("SparkSession", spark)
    return spark, lambda: tasks._on_spark(session, double, ["a", "b", "c"], tick)


def test_sparks_answers_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    ticked = threading.Event()

    def collect(_: _Spark) -> dict[int, tuple[str, str]]:
        assert ticked.wait(30)
        return {2: ("ok", "cc"), 0: ("ok", "aa"), 1: ("error", "b")}

    reported: list[int] = []

    def tick(done: int) -> None:
        reported.append(done)
        ticked.set()

    spark, run = on_spark(monkeypatch, collect, tick)
    assert run() == [("ok", "aa"), ("error", "b"), ("ok", "cc")]
    assert spark.calls == [("set", "cqstore", True, True), ("collect",)]
    assert set(reported) == {2}


def test_an_interrupt_cancels_what_runs_on_spark_and_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[bool] = []

    def collect(spark: _Spark) -> dict[int, tuple[str, str]]:
        ended.append(spark.cancelled.wait(30))
        raise ValueError("cancelled")

    def tick(_: int) -> None:
        raise KeyboardInterrupt

    spark, run = on_spark(monkeypatch, collect, tick)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert ended == [True]
    group = spark.calls[0][1]
    assert spark.calls[-1] == ("cancel", group)


@pytest.mark.parametrize(
    ("exc", "said"),
    [(ValueError("first\n  the last \n\n"), "the last"), (ValueError(), "ValueError"),
     (SystemExit("left"), "left")],
)  # fmt: skip
def test_what_ends_a_task_on_spark_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, exc: BaseException, said: str
) -> None:
    def collect(_: _Spark) -> None:
        raise exc

    _, run = on_spark(monkeypatch, collect, bool)
    with pytest.raises(StoreError) as caught:
        run()
    assert str(caught.value) == f"a task failed on Spark: {said}"
    assert caught.value.__cause__ is exc
