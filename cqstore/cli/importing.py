"""Ctrl-C while Python imports: nothing was begun, so the process ends as any other program does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Have SIGINT end the process at once while the block imports modules.

    An exception would come out of the middle of an import, as a traceback that says nothing, and
    leave modules half made. A handler of the caller's own, and other threads, are left alone.
    """
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_pythons or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
