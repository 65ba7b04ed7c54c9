"""A process that has a store open forks: the child is refused everything and touches nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.engines import ENGINES

SECONDS = 60
BACKENDS = [
    ("file", "auto"), *[(name, engine.value) for name in ("rocksdb", "both") for engine in ENGINES],
]  # fmt: skip
CALLS = [
    "put", "async", "list", "get", "max", "read-only", "query", "queues", "flush", "delete",
    "rebuild", "metrics",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "engine"), BACKENDS)
def test_a_child_is_refused_and_touches_nothing(tmp_path: Path, backend: str, engine: str) -> None:
    words = [sys.executable, "-m", "tests.kit.forked_child", str(tmp_path / "s"), backend, engine]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[: len(CALLS)] == [f"{call} StoreStateError" for call in CALLS]
    assert lines[len(CALLS) :] == [
        "open StoreLockedError", "left",
        "child 0", "abort True", "clean True", "damage 0", "messages 101",
    ]  # fmt: skip
