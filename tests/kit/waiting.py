"""Waiting for a condition instead of for a time."""

import asyncio
import time
from collections.abc import Callable

_SECONDS = 30


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds; fail after half a minute."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.001)  # for the thread that is waited for


async def becomes(condition: Callable[[], object]) -> None:
    """Wait within a loop until it holds; fail after half a minute."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.001)  # for the tasks and threads that are waited for
