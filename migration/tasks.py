"""Running tasks: on Spark, a row a task, or without it in processes of this machine.

A task is a function of a module and a JSON text; it returns a JSON text. What it has to say beyond
that lies in files. A ``StoreError`` is an outcome: it comes back as it is and is not tried again;
anything else is, where Spark has attempts left.
"""

import base64
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from migration.session import spark_session
from store.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NO_SPARK = "none"
"""The ``master`` that means: processes of this machine, without Spark."""
_POLL_SECONDS = 0.25
_GROUP = "cqstore"
Task = Callable[[str], str]
_OK, _ERROR = "ok", "error"


def run_tasks(
    task: Task, items: Sequence[str], master: str, tick: Callable[[], object] = bool
) -> list[str]:
    """Run ``task`` on each item and return the results in the order of the items.

    ``tick`` is called four times a second meanwhile. Ctrl-C cancels what runs and is raised again.

    Raises:
        StoreError: the first that a task ended with, after the others have ended.
        StoreConfigError: Spark is not installed.
    """
    if not items:
        return []
    if master == NO_SPARK:
        return _unwrap(_in_processes(task, items, tick))
    with spark_session("cqstore", master) as spark:
        return _unwrap(_on_spark(spark, task, items, tick))


def _unwrap(outcomes: Sequence[tuple[str, str]]) -> list[str]:
    for kind, text in outcomes:
        if kind == _ERROR:
            raise pickle.loads(base64.b64decode(text))
    return [text for _, text in outcomes]


def _guarded(task: Task, item: str) -> tuple[str, str]:
    try:
        return _OK, task(item)
    except StoreError as exc:
        exc.__cause__ = exc.__context__ = None
        return _ERROR, base64.b64encode(pickle.dumps(exc)).decode()


# ---- without Spark


def _in_processes(
    task: Task, items: Sequence[str], tick: Callable[[], object]
) -> list[tuple[str, str]]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_guarded, task, item) for item in items]
        try:
            while wait(futures, _POLL_SECONDS).not_done:
                tick()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(getattr(pool, "_processes", None) or {}.values()):
                process.terminate()
            raise
        return [future.result() for future in futures]


# ---- on Spark


def _on_spark(
    spark: "SparkSession", task: Task, items: Sequence[str], tick: Callable[[], object]
) -> list[tuple[str, str]]:
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
        while not ended.wait(_POLL_SECONDS):
            tick()
    except BaseException:
        spark.sparkContext.cancelJobGroup(_GROUP)
        thread.join()
        raise
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise StoreError(f"a task failed on Spark: {_first_line(outcome[0])}") from outcome[0]
    found: dict[int, tuple[str, str]] = outcome[0]
    return [found[number] for number in range(len(items))]


def _collect(spark: "SparkSession", task: Task, items: Sequence[str]) -> dict[int, tuple[str, str]]:
    texts = spark.sparkContext.broadcast(list(items))

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - the worker's

        for batch in batches:
            for number in batch.column(0).to_pylist():
                kind, text = _guarded(task, texts.value[number])
                yield pa.RecordBatch.from_pydict(
                    {"number": [number], "kind": [kind], "text": [text]}
                )

    rows = (
        spark.range(0, len(items), 1, len(items))
        .mapInArrow(run, "number long, kind string, text string")
        .collect()
    )
    return {row.number: (row.kind, row.text) for row in rows}


def _first_line(exc: BaseException) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1] if lines else type(exc).__name__
