"""A log file that is cut under an open store: answers are right or errors, none is a signal."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store.core import CORE
from tests.kit.cut_log_child import COUNT, CUTS, questions

HERE = Path(__file__).parents[2]
PUTS = ("put_sync", "put_list_sync", "put_long", "put_and_flush")
SILENT = {
    (ask, "inside the last record") for ask in ("offset_by_time", "log_heads", "times_of_many")
} | ({("pulled_before", cut) for cut in CUTS} if CORE is None else set())
"""What does not read so far, or has read before."""


def asked_of_child(root: Path, backend: str, ask: str, cut: str) -> Any:
    """Return what a process answers whose log is cut."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.cut_log_child", root, backend, ask, cut],
        cwd=HERE, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"CQSTORE_CORE": "0" if CORE is None else "1"},
    )  # fmt: skip
    assert done.returncode != -signal.SIGBUS
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ask", [ask for ask in questions() if ask not in PUTS])
def test_a_reader_gets_the_right_answer_or_an_error(tmp_path: Path, ask: str, cut: str) -> None:
    found = asked_of_child(tmp_path, "file", ask, cut)
    assert found["right"] + len(found["errors"]) > 0
    if ask == "dispatch":  # it has what waits in memory
        return
    if (ask, cut) in SILENT:
        assert found["errors"] == []
        return
    assert any("shrunk" in error for error in found["errors"])
    if ask.startswith("pull"):
        assert found["right"] >= (0 if cut == "nothing is left" else 39)
        assert found["right"] < 5 * COUNT


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["pull", "offset_by_time"])
def test_a_reader_of_rocksdb_queues_does_too(tmp_path: Path, ask: str) -> None:
    found = asked_of_child(tmp_path, "rocksdb", ask, "at a page")
    if ask == "pull":
        assert any("shrunk" in error for error in found["errors"])


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ask", PUTS)
def test_nothing_is_acknowledged_that_the_file_has_not(tmp_path: Path, ask: str, cut: str) -> None:
    found = asked_of_child(tmp_path, "file", ask, cut)
    first, then = found["errors"]
    assert first.startswith("CorruptionError: the file has shrunk")
    assert "expected 65536 bytes, found" in first
    assert "earlier" in then
