"""Waiting for a condition instead of for a time."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
_SECONDS = 120
"""Of a machine that does much else; what is waited for takes a small part of it."""


def until(
    condition: Callable[[], bool],
    instead: Callable[[], object] | None = None,
    *,
    seconds: float = _SECONDS,
    pause: float = 0.001,
) -> None:
    """Wait until it holds; fail after two minutes, with what there is ``instead``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError("it never came about", *([instead()] if instead else []))
        time.sleep(pause)  # for the thread that is waited for


async def becomes(condition: Callable[[], object]) -> None:
    """Wait within a loop until it holds; fail after two minutes."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        await asyncio.sleep(0.001)  # for the tasks and threads that are waited for


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run ``story`` in a loop of its own; fail after two minutes."""

    async def limited() -> T:
        async with asyncio.timeout(_SECONDS):
            return await story

    return asyncio.run(limited())


@contextmanager
def running_threads(
    threads: Sequence[threading.Thread], seconds: float | None = None
) -> Iterator[None]:
    """Start ``threads``; after the block wait for the end of each, at most ``seconds``."""
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(seconds)


def run_threads(threads: Sequence[threading.Thread], seconds: float | None = None) -> None:
    """Start ``threads`` and wait for the end of each, at most ``seconds``."""
    with running_threads(threads, seconds):
        pass
