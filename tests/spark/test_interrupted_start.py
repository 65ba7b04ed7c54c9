"""Ctrl-C while Spark starts: nothing that was started survives."""

import logging
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pyspark import SparkContext, java_gateway

from cqstore.spark import starting
from cqstore.spark.spark_session import _is_not_py4js
from cqstore.spark.starting import _interrupts_wait, ended_by_interrupt, ended_if_cut_short
from tests.kit.commands import COMMAND
from tests.kit.waiting import until
from tools.bench.sample_store import make_store

_MARK = "CQSTORE_STARTED_BY_TEST"
_SUBMIT = """#!/bin/bash
sleep 600 & echo $! > {there}.part && mv {there}.part {there}
wait
"""
_STARTS = (
    "from cqstore.spark.spark_session import spark_session as s\nwith s('x', 'local[1]'): pass"
)


def marked(mark: str) -> list[int]:
    """Return the processes that have ``mark`` in their environment, those that ended left out."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            given = (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{_MARK}={mark}".encode() in given.split(b"\0") and state != "Z":
            found.append(int(folder.name))
    return found


def all_gone(mark: str) -> bool:
    return not marked(mark)


@pytest.mark.slow
def test_what_starts_java_ends_with_its_children(tmp_path: Path) -> None:
    """A spark-submit that never comes to its end, as seen at the moment of Ctrl-C."""
    there, mark = tmp_path / "there", uuid4().hex
    submit = tmp_path / "home" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(_SUBMIT.format(there=there))
    submit.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTS], stderr=subprocess.PIPE, text=True,
        env=os.environ | {_MARK: mark, "SPARK_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    until(there.exists)
    assert int(there.read_text()) in marked(mark)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    until(partial(all_gone, mark))


@pytest.mark.long
@pytest.mark.parametrize("verb", ["sql", "run", "verify"])
def test_no_verb_leaves_java_behind_at_any_moment(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "store"
    make_store(root, 2_000, 5)
    words = ["migrate", "plan", root]
    subprocess.run([*COMMAND, *map(str, words)], check=True, capture_output=True)
    if verb == "verify":
        words = ["migrate", "run", root, "--master", "none"]
        subprocess.run([*COMMAND, *map(str, words)], check=True, capture_output=True)
    whole = ["sql", root, "select count(*) from cq"] if verb == "sql" else ["migrate", verb, root]
    draw = random.Random(verb)
    for _ in range(6):
        mark, ended = uuid4().hex, threading.Event()
        process = subprocess.Popen(
            [*COMMAND, *map(str, whole)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {_MARK: mark}, start_new_session=True,
        )  # fmt: skip
        ended.wait(draw.uniform(0.3, 9))  # any moment will do
        with suppress(ProcessLookupError):  # it was quicker
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=120) != 1
        until(partial(all_gone, mark))


def test_java_is_given_the_time_to_end_by_itself() -> None:
    """It removes its folders before it goes."""
    words = "trap 'exit 3' TERM; echo ready; sleep 600 & wait"
    with subprocess.Popen(["sh", "-c", words], process_group=0, stdout=subprocess.PIPE) as java:
        assert java.stdout is not None
        assert java.stdout.readline() == b"ready\n"
        starting._end(java)
        assert java.returncode == 3


def test_ctrl_c_ends_java_though_spark_waits_for_its_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What pyspark calls in ``finally`` would wait for Java, and raises that it has gone."""
    with subprocess.Popen(["sleep", "600"], process_group=0) as java:
        java.silenced = silenced = threading.Event()  # type: ignore[attr-defined]
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        for name in ("_jvm", "_active_spark_context"):  # of a session that other tests have
            monkeypatch.setattr(SparkContext, name, None)
        monkeypatch.setattr(logging.getLogger("py4j"), "level", logging.NOTSET)
        before = signal.getsignal(signal.SIGINT)

        def ask() -> None:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                assert java.poll() == -signal.SIGTERM
                raise ConnectionError("Java has gone")

        with pytest.raises(KeyboardInterrupt), ended_by_interrupt():
            ask()
    assert signal.getsignal(signal.SIGINT) is before
    assert SparkContext._gateway is None  # the next session starts another
    assert logging.getLogger("py4j").level > logging.CRITICAL  # it says nothing of Java's end
    assert silenced.is_set()


def test_a_session_of_a_process_in_our_group_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To end its group would end this process."""
    with subprocess.Popen(["sleep", "600"]) as java:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
        with pytest.raises(KeyboardInterrupt), ended_by_interrupt() as ended:
            signal.raise_signal(signal.SIGINT)
        assert (ended.has_come, java.poll()) == (False, None)
        java.kill()


def test_ctrl_c_comes_at_the_end_of_what_must_not_be_cut_short() -> None:
    before, done = signal.getsignal(signal.SIGINT), []

    def start() -> None:
        with _interrupts_wait():
            signal.raise_signal(signal.SIGINT)
            done.append("the block")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["the block"]
    assert signal.getsignal(signal.SIGINT) is before
    with _interrupts_wait():
        done.append("without a signal it just goes on")


def test_where_ctrl_c_never_comes_nothing_is_set() -> None:
    """Python refuses to set a signal's handler in another thread than the first."""

    def start() -> object:
        with _interrupts_wait():
            return signal.getsignal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(start).result() is before


def test_what_java_says_is_read_where_nobody_else_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[object] = []
    monkeypatch.setattr(starting, "pass_on", read.append)
    with ended_if_cut_short():
        start: Any = vars(java_gateway)["Popen"]
        with start(["true"]) as ours, start(["true"], stderr=subprocess.DEVNULL) as theirs:
            assert read == [ours.stderr]
            assert theirs.stderr is None
    assert vars(java_gateway)["Popen"] is subprocess.Popen


@pytest.mark.long
def test_a_long_query_ends_soon_at_ctrl_c_and_without_a_traceback(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 20_000, 5)
    query = (
        "select count(*) from cq a join cq b on a.queue_id = b.queue_id"
        " join cq c on b.size = c.size"
    )
    draw = random.Random(7)
    for _ in range(6):
        mark, ended = uuid4().hex, threading.Event()
        with subprocess.Popen(
            [*COMMAND, "sql", root, query], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, env=os.environ | {_MARK: mark}, start_new_session=True,
        ) as process:  # fmt: skip
            ended.wait(draw.uniform(4, 20))  # any moment will do
            os.killpg(process.pid, signal.SIGINT)
            reported = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert "Traceback" not in reported
        assert "Exception" not in reported
        until(partial(all_gone, mark))


def test_what_py4j_says_of_an_interrupt_stays_out_of_the_root_logger() -> None:
    """It writes a traceback there; what others write comes through."""
    for path, reported in (("/x/py4j/java_gateway.py", False), ("/x/mine/py4j.py", True)):
        record = logging.LogRecord("root", logging.ERROR, path, 1, "x", (), None)
        assert _is_not_py4js(record) is reported
