"""A process that stands still."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kit.waiting import until


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Hold all threads of a process while the block runs, which may kill it.

    ``kill`` returns before they have stopped: one that runs, or is in a call of the kernel, goes on
    until it is reached.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: all(_state(task) in "TtXZ" for task in Path(f"/proc/{pid}/task").glob("*")))
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(task: Path) -> str:
    """Return the state letter of ``proc(5)``, X for a thread that is gone."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
