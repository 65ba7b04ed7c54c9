"""Runs blocking calls for a task of an event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from cqstore.store.errors import DiskFullError, DispatcherError

A = TypeVarTuple("A")
R = TypeVar("R")


async def to_the_end(step: Callable[[*A], R], *given: *A) -> R:
    """Run a blocking step in a thread; a cancellation waits for its end.

    If the step fails after a cancellation, an error of the store takes precedence.

    Raises:
        Exception: any exception that ``step`` raises.
        asyncio.CancelledError: the task was cancelled; the step has ended.
    """
    job = asyncio.ensure_future(asyncio.to_thread(step, *given))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        fault = job.exception()
        if fault is not None and not isinstance(fault, DiskFullError | DispatcherError):
            raise fault from None
        raise
