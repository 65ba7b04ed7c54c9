"""SIGINT and SIGTERM in an event loop: they end work, or set an event."""

import asyncio
import signal
from collections.abc import Coroutine

ENDED_BY_SIGNAL = 128
"""Added to a signal's number for the exit code."""
_ENDING = signal.SIGINT, signal.SIGTERM


def ended_event() -> asyncio.Event:
    """Return an event of the running loop that SIGINT or SIGTERM sets."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in _ENDING:
        loop.add_signal_handler(number, ended.set)
    return ended


async def ended_by(work: Coroutine[object, object, object]) -> signal.Signals | None:
    """Run ``work`` until SIGINT or SIGTERM cancels it; return the signal, if any.

    Raises:
        asyncio.CancelledError: another caller cancelled it.
        Exception: any exception that ``work`` raises.
    """
    loop, received = asyncio.get_running_loop(), list[signal.Signals]()
    task = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    return received[0] if received else None
