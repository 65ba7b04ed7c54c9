"""Runs of a migration in processes of their own, watched and killed by tests.

Instants are told by what the run has done: how many names there have been in its folder of
segments. No test waits for a time.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cqstore.migration.workspace import Workspace
from tests.kit.stopped import stopped

COMMAND = [str(Path(sys.executable).parent / "cqstore"), "migrate"]
LIMIT_SECONDS = 180
_LOOK_SECONDS = 0.003


@contextmanager
def running(
    root: Path, master: str, bytes_per_second: float
) -> Iterator["subprocess.Popen[bytes]"]:
    """A ``run`` as a process; killed if it is still there at the end of the block."""
    words = [*COMMAND, "run", str(root), "--master", master, "--output", "json"]
    rate = ["--max-bytes-per-second", str(bytes_per_second)]
    process = subprocess.Popen([*words, *rate], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def until(process: "subprocess.Popen[Any]", condition: Callable[[], bool]) -> None:
    """Look every few ms until ``condition`` holds; it must before the process ends."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        try:
            process.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        assert condition(), f"ended before: {process.communicate()}"


class Seen:
    """Names that there have been in the folder of segments: attempts, their files, markers."""

    def __init__(self, space: Workspace) -> None:
        self._folder = space.segments
        self._names: set[str] = set()

    def look(self) -> int:
        """Return how many there have been up to now."""
        pattern = ("*", "*/*.sst")
        self._names |= {str(path) for each in pattern for path in self._folder.glob(each)}
        return len(self._names)


def finished(space: Workspace) -> dict[int, str]:
    """Return the attempt that counts of each finished segment."""
    return {
        int(path.name.split(".")[0]): json.loads(path.read_text())["attempt"]
        for path in space.segments.glob("*.done")
    }


def unfinished(space: Workspace) -> dict[int, Path]:
    """Return the folders of attempts at segments without a marker, by the attempt's process."""
    done = finished(space)
    return {
        int(path.name.split(".")[1].split("-")[0]): path
        for path in space.segments.glob("*.*-*")
        if ".done" not in path.name and int(path.name.split(".")[0]) not in done
    }


def descendants(pid: int) -> set[int]:
    """Return the ids of all processes below one."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found: set[int] = set()
    below = {pid}
    while below:
        below = {child for child, parent in parents.items() if parent in below} - found
        found |= below
    return found


def kill_a_worker(process: "subprocess.Popen[Any]", space: Workspace, draw: random.Random) -> Path:
    """Kill a worker in the middle of an attempt; return the attempt's folder."""
    killed: list[Path] = []

    def tried() -> bool:
        below = descendants(process.pid)
        attempts = [(pid, path) for pid, path in unfinished(space).items() if pid in below]
        if attempts:
            pid, path = draw.choice(attempts)
            with suppress(ProcessLookupError), stopped(pid):
                if unfinished(space).get(pid) == path:  # it may have ended meanwhile
                    os.kill(pid, signal.SIGKILL)
                    killed.append(path)
        return bool(killed)

    until(process, tried)
    return killed[0]


def gone(pids: set[int]) -> None:
    """Wait until none of these processes runs: a zombie that is not reaped does not."""
    deadline = time.monotonic() + LIMIT_SECONDS
    for pid in pids:
        while _runs(pid):
            assert time.monotonic() < deadline, f"process {pid} goes on"


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
