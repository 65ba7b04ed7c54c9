"""The session: how it is set up, whose it is, and what is said where Spark is missing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from migration import session
from migration.session import master_with_retries, spark_session
from store.errors import StoreConfigError


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_failed_local_task_is_tried_again(given: str, used: str) -> None:
    assert master_with_retries(given) == used


def test_workers_run_this_interpreter_and_this_checkout(spark: SparkSession) -> None:
    (row,) = spark.range(1).mapInArrow(_who, "python string, package string").collect()
    assert Path(row.python).parent == Path(sys.executable).parent  # of several names of it there
    assert row.package == session.__file__


def test_a_session_that_was_there_is_given_and_goes_on(spark: SparkSession) -> None:
    with spark_session("another", "local[1]") as given:
        assert given is spark
    assert spark.range(3).count() == 3


def test_times_are_utc_and_filters_are_pushed_down(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_without_spark_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> ModuleSpec | None:
        return None if name == "pyspark" else find_spec(name)

    monkeypatch.setattr("migration.session.find_spec", without)
    with pytest.raises(StoreConfigError, match=r"install cqstore\[spark\]"), spark_session("x"):
        pass


@pytest.mark.parametrize("master", ["", "local[]", "local[x]", "local-cluster[2]", "spark:"])
def test_what_is_no_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(StoreConfigError, match=r"is no master of Spark's: local\[N\]"):
        spark_session("x", master).__enter__()


def test_importing_the_module_imports_no_spark() -> None:
    code = "import sys, migration.session; print([n for n in sys.modules if n.startswith('pysp')])"
    path = os.pathsep.join([str(session._ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def _who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"python": [sys.executable], "package": [session.__file__]}
        )


class Failing:
    """A builder of sessions that fails in its own way."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: self

    def getOrCreate(self) -> NoReturn:  # noqa: N802 - pyspark's name
        raise ArithmeticError("not of Spark")


def test_what_is_not_sparks_fault_is_not_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    kind: Any = SimpleNamespace(builder=Failing())
    with pytest.raises(ArithmeticError, match="not of Spark"):
        session._start(kind, "app", "local[1]", {})
