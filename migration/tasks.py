"""Run tasks on Spark, one row per task, or in processes of this machine.

A task is a function of a module that takes and returns a JSON text; other results are in files. A
``StoreError`` is a result and is returned unchanged. A task that ends for any other reason, such as
a killed process, is tried again.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cqstore.spark.spark_session import refuse_no_master, refuse_without_spark, spark_session
from cqstore.store.concurrency.processes import POLL_SECONDS, Outcome, in_processes
from cqstore.store.concurrency.task_worker import Task, guarded, unwrap
from cqstore.store.errors import StoreError
from cqstore.store.progress import noop

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MASTER = "local[*]"
"""Spark's master, by default: this machine."""
NO_SPARK = "none"
"""The ``master`` that means: processes of this machine, without Spark."""
_GROUP = "cqstore"


def check_master(master: str) -> None:
    """Refuse a ``master`` that cannot run tasks, before the caller writes anything.

    Raises:
        StoreConfigError: ``master`` is invalid, or Spark is not installed.
    """
    if master != NO_SPARK:
        refuse_without_spark(f", or give --master {NO_SPARK}")
        refuse_no_master(master)


def ran_in(master: str, tasks: int, *, alone: bool = False) -> str:
    """Return where ``run_tasks`` ran so many tasks, for reports."""
    if alone and _is_alone(master, tasks):
        return "this process"
    if master != NO_SPARK:
        return f"Spark, {master}"
    processes = min(tasks, os.cpu_count() or 1)
    return f"{processes} {'process' if processes == 1 else 'processes'}"


@contextmanager
def ready(master: str) -> Iterator[None]:
    """Start Spark for the calls of ``run_tasks`` in the block, and stop it afterwards.

    Raises:
        StoreConfigError: Spark is not installed, or does not start.
    """
    check_master(master)
    if master == NO_SPARK:
        yield
        return
    with spark_session("cqstore", master):
        yield


def run_tasks(
    task: Task,
    items: Sequence[str],
    master: str,
    tick: Callable[[int], object] = noop,
    *,
    alone: bool = False,
) -> list[str]:
    """Run ``task`` on each item and return the results in the order of the items.

    With ``alone``, a single task runs in this process without Spark: a process takes longer to
    start than most tasks take that only read.

    ``tick`` is called four times per second with the number of finished items, and once before
    Spark starts, which takes long. Ctrl-C cancels the running tasks and is raised again.

    Raises:
        StoreError: the first error of a task, raised after all tasks have ended.
        StoreConfigError: Spark is not installed.
    """
    check_master(master)
    if not items:
        return []
    if alone and _is_alone(master, len(items)):
        return [task(items[0])]
    if master == NO_SPARK:
        outcomes = in_processes(task, items, tick)
    else:
        tick(0)
        with spark_session("cqstore", master) as spark:
            outcomes = _on_spark(spark, task, items, tick)
    return [unwrap(kind, text) for kind, text in outcomes]


def _is_alone(master: str, tasks: int) -> bool:
    return tasks == 1 and master == NO_SPARK


# ---- on Spark


def _on_spark(
    spark: "SparkSession", task: Task, items: Sequence[str], tick: Callable[[int], object]
) -> list[Outcome]:
    """Run the task on each item in Spark; return the outcomes in the order of the items.

    Raises:
        StoreError: Spark failed.
    """
    from pyspark import InheritableThread  # noqa: PLC0415 - an extra

    outcome: list[Any] = []
    ended = threading.Event()

    def work() -> None:
        try:
            spark.sparkContext.setJobGroup(_GROUP, "cqstore", interruptOnCancel=True)
            outcome.append(_collect(spark, task, items))
        except BaseException as exc:  # noqa: BLE001 - raised in the caller's thread
            outcome.append(exc)
        finally:
            ended.set()

    thread = InheritableThread(target=work)
    thread.start()
    try:
        while not ended.wait(POLL_SECONDS):
            tick(_done(spark))
    except BaseException:
        spark.sparkContext.cancelJobGroup(_GROUP)
        thread.join()
        raise
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise StoreError(f"a task failed on Spark: {_last_line(outcome[0])}") from outcome[0]
    found: dict[int, Outcome] = outcome[0]
    return [found[number] for number in range(len(items))]


def _done(spark: "SparkSession") -> int:
    """Return how many tasks of the job that runs have ended."""
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(_GROUP))
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)


def _collect(spark: "SparkSession", task: Task, items: Sequence[str]) -> dict[int, Outcome]:
    """Return number → outcome of each item."""
    texts = spark.sparkContext.broadcast(list(items))

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - the worker's

        for batch in batches:
            for number in batch.column(0).to_pylist():
                kind, text = guarded(task, texts.value[number])
                yield pa.RecordBatch.from_pydict(
                    {"number": [number], "kind": [kind], "text": [text]}
                )

    rows = (
        spark.range(0, len(items), 1, len(items))
        .mapInArrow(run, "number long, kind string, text string")
        .collect()
    )
    return {row.number: (row.kind, row.text) for row in rows}


def _last_line(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__
