"""Ctrl-C handling between two steps of a command that reports its progress."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + 2
"""Exit code that a shell reports for a process ended by SIGINT."""


@contextmanager
def interrupts(*others: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Yield a check whether Ctrl-C was pressed, or one of ``others`` arrived; only a second raises.

    An exception in the middle of a write would leave already written lines in a buffer, and an
    exception in the middle of a put would leave a message uncounted.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        _ = frame
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *others)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # a background job of a shell ignores Ctrl-C
            signal.signal(number, note)
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
