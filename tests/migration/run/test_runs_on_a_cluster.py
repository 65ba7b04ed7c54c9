"""Runs on two executors in processes of their own: killed ones are replaced, the second is dropped.

Each session is in a process of its own: it cannot be had beside the one of the other tests.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from tests.kit.migrations import NO_SPARK
from tests.kit.running import descendants, finished, kill_a_worker, unfinished, until
from tools.bench.sample_store import make_store

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.crash]
UNITS, QUEUES, SEGMENTS = 6_000, 24, 12
RATE = 28 * UNITS / 6


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", UNITS, QUEUES)
    assert len(make_plan(tmp_path / "store", segment_units=UNITS // SEGMENTS).segments) == SEGMENTS
    return tmp_path / "store"


@contextmanager
def clustered(root: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.clustered", str(root), str(RATE), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended_well(process: "subprocess.Popen[str]", root: Path) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    assert (report["units"], report["verdict"]) == (UNITS, "equal")
    space = Workspace.of(root)
    after = finished(space)
    kept = {f"{number:06}.{end}" for number, each in after.items() for end in (each, "done")}
    assert {path.name for path in space.segments.iterdir()} == kept
    assert len(after) == SEGMENTS
    again = verify_migration(root, master=NO_SPARK)
    assert (again.equal, again.result.target.units) == (True, UNITS)
    return report


def test_the_python_of_an_executor_is_killed(root: Path) -> None:
    space = Workspace.of(root)
    with clustered(root) as process:
        until(process, lambda: len(finished(space)) > 1)
        killed = kill_a_worker(process, space, random.Random(1))
        before = finished(space)
        ended_well(process, root)
    assert not killed.exists()
    after = finished(space)
    assert {number: after[number] for number in before} == before


def test_an_executor_is_killed(root: Path) -> None:
    space = Workspace.of(root)
    with clustered(root) as process:
        until(process, lambda: len(finished(space)) > 1 and bool(unfinished(space)))
        executors = executors_of(process.pid)
        assert len(executors) == 2
        os.kill(min(executors), signal.SIGKILL)
        before = finished(space)
        ended_well(process, root)
    after = finished(space)
    assert {number: after[number] for number in before} == before


def test_of_two_attempts_at_once_one_counts(root: Path) -> None:
    """As by speculative execution, which Spark does between hosts only: each segment is two tasks.

    One of two is stopped in its attempt until the other has ended: it comes late.
    """
    space = Workspace.of(root)
    stopped: list[tuple[int, Path]] = []

    def stop_one_of_two() -> bool:
        at_work = unfinished(space)
        for pid, path in at_work.items():
            if sum(_segment(path) == _segment(each) for each in at_work.values()) > 1:
                os.kill(pid, signal.SIGSTOP)
                stopped.append((pid, path))
                return True
        return False

    with clustered(root, "twice") as process:
        until(process, stop_one_of_two)
        pid, path = stopped[0]
        try:
            until(process, lambda: _segment(path) in finished(space))
            attempt = finished(space)[_segment(path)]
        finally:
            os.kill(pid, signal.SIGCONT)
        assert ended_well(process, root)["moved"] == 0
    assert not path.name.endswith(f".{attempt}")
    assert not path.exists()
    assert finished(space)[_segment(path)] == attempt


def _segment(attempt: Path) -> int:
    return int(attempt.name.split(".")[0])


def executors_of(pid: int) -> set[int]:
    """Return the Java processes below one that are executors."""
    found = set()
    for each in descendants(pid):
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"CoarseGrainedExecutorBackend") for word in words):
            found.add(each)
    return found
