"""What workers of Spark's say on standard error: nothing where Spark closed the pipe itself."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark import daemon
from pyspark.sql import SparkSession

from cqstore.spark.daemon import print_exc, print_line, quieten


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, ValueError, EOFError])
def test_a_closed_pipe_is_not_told_and_the_rest_is(
    error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error("what happened")  # noqa: TRY301 - what is being handled counts
    except error:
        print_line("failed to flush", file=sys.stderr)
        print_exc()
    reported = capsys.readouterr().err
    if error in {BrokenPipeError, ConnectionResetError}:
        assert reported == ""
    else:
        assert reported.startswith("failed to flush\nTraceback")
        assert "what happened" in reported


def test_the_daemon_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(**vars(daemon))
    monkeypatch.setattr("cqstore.spark.daemon.daemon", stand_in)
    assert {"print", "traceback"} <= set(daemon.worker.__code__.co_names)
    assert "print_exc" in daemon.manager.__code__.co_names
    quieten()
    assert (stand_in.print, stand_in.traceback.print_exc) == (print_line, print_exc)


def test_sessions_run_it(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.daemon.module") == "cqstore.spark.daemon"


ENOUGH = """
from cqstore.spark.spark_session import spark_session

def many(batches):
    for batch in batches:
        for _ in range(2000):
            yield batch

with spark_session("enough", "local[2]") as spark:
    print(len(spark.range(100_000).mapInArrow(many, "id long").limit(1).collect()))
"""


@pytest.mark.long
def test_a_task_that_needs_no_more_rows_leaves_no_traceback() -> None:
    """It was printed some times in ten; each looked like a failure."""
    done = subprocess.run(
        [sys.executable, "-c", ENOUGH], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    assert "Traceback" not in done.stderr
