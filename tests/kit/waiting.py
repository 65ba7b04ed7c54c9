"""Waiting for a condition instead of for a time."""

import time
from collections.abc import Callable

_SECONDS = 30


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds; fail after half a minute."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.001)  # for the thread that is waited for
