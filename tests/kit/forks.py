"""A child of this process that does one thing, and is waited for with a limit."""

import faulthandler
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

RAISED = 99
"""What a child ends with whose step raised."""
_SECONDS = 120
_REQUESTED = signal.SIGUSR2
"""Has a child that ``forked`` has made write to standard error where its threads are."""
_ANSWER_SECONDS = 5


def fork() -> int:
    """Fork as ``os.fork`` does, without the warning of CPython 3.12 and later that threads run.

    That they do is what is tried.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def forked(step: Callable[[], int | None]) -> int:
    """Return how a child ended that does ``step``: with what that returns, ``None`` for 0.

    It never comes back into pytest, where it would run the tests that are left a second time, and
    talk to pytest-xdist as the process that forked it does.
    """
    child = fork()
    if not child:
        code = RAISED
        try:
            faulthandler.register(_REQUESTED, file=2)
            code = step() or 0
        except BaseException:  # noqa: BLE001 - told here, or never
            traceback.print_exc()
        finally:
            os._exit(code)
    return ended(child)


def ended(child: int, seconds: float = _SECONDS) -> int:
    """Return how a child ended; kill it if it goes on so long, or if the wait is interrupted.

    Raises:
        AssertionError: it went on.
    """
    handle, has_ended, where = os.pidfd_open(child), False, ""
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        has_ended = bool(waiting.poll(1000 * seconds))
        if not has_ended:
            where = _whereabouts(child)
            os.kill(child, _REQUESTED)  # which ends one that does not know it
            waiting.poll(1000 * _ANSWER_SECONDS)
    finally:
        os.close(handle)
        if not has_ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert has_ended, f"the forked process {child} did not end within {seconds} s{where}"
    return os.waitstatus_to_exitcode(status)


def _whereabouts(child: int) -> str:
    """Return in which calls of the kernel the threads of a process are."""
    found = ""
    for thread in Path(f"/proc/{child}/task").iterdir():
        with suppress(OSError):  # it has ended
            found += f"; {(thread / 'wchan').read_text()}: {(thread / 'syscall').read_text()}"
    return found
