"""Ctrl-C while Python imports modules: no work has started, so the process ends at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Make SIGINT end the process at once while the block imports modules.

    An exception in the middle of an import would print a useless traceback and leave modules half
    imported. A handler that the caller installed, and other threads, are not affected.
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
