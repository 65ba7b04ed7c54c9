"""What of Spark's standard error comes to ours."""

import os
import threading
from functools import partial

import pytest

from cqstore.spark.java_notes import news, pass_on
from tests.kit.waiting import until

HEAD = "Traceback (most recent call last):\n"
FRAME = '  File "pyspark/daemon.py", line 264, in manager\n'


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        (["WARNING: Using incubator modules: jdk.incubator.vector\n", "a\n"], ["a\n"]),
        (["a\n", HEAD, FRAME, "BrokenPipeError: [Errno 32] Broken pipe\n", "b\n"], ["a\n", "b\n"]),
        ([HEAD, FRAME, "ConnectionResetError: [Errno 104] x\n"], []),
        ([HEAD, FRAME, "ValueError: x\n"], [HEAD, FRAME, "ValueError: x\n"]),
        (["a\n", HEAD], ["a\n"]),
        (["  a\n", "21:15:51 ERROR x\n"], ["  a\n", "21:15:51 ERROR x\n"]),
    ],
)
def test_what_is_no_news_is_left_out(lines: list[str], reported: list[str]) -> None:
    assert list(news(lines)) == reported


def test_the_rest_is_passed_on_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    read, write = os.pipe()

    def has(text: str) -> bool:
        seen.append(capsys.readouterr().err)
        return text in "".join(seen)

    with os.fdopen(write, "wb", buffering=0) as java:
        before = {*threading.enumerate()}
        silenced = pass_on(os.fdopen(read, "rb"))
        (copying,) = {*threading.enumerate()} - before
        java.write(b"no \xff UTF-8\n")
        until(partial(has, "no \ufffd UTF-8\n"))
        java.write(b"more\n")
        until(partial(has, "more\n"))
        silenced.set()
        java.write(b"ERROR TaskSchedulerImpl: Exception in statusUpdate\n")
    copying.join()
    assert "Exception" not in "".join(seen) + capsys.readouterr().err
