"""Ctrl-C handling between two steps of a command that reports its progress."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + 2
"""As of a shell for a process that SIGINT ended."""


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a check whether Ctrl-C was pressed; only the second Ctrl-C raises.

    An exception in the middle of a write would leave lines in a buffer that were written already,
    and one in the middle of a put a message that was not counted.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        _ = frame
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # in the background of a shell
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)
