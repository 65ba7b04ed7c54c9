"""StoreLogger: logging in which no thread of a store waits for a caller that was interrupted.

Before Python 3.13 ``logging`` takes the lock of a handler in a line of Python. An exception behind
that line (a signal's handler raises it) leaves the lock taken for ever by the main thread, which
continues to log. Any other thread would wait in its next line for ever, with what it holds of a
store, and ``close`` for that thread. So it waits no longer than a second here; then the handler
goes without the line. What a handler waits for beside its own lock is its own affair.
"""

import logging
import threading
from weakref import WeakSet

_SECONDS = 1.0
logging.getLogger("cqstore").addHandler(logging.NullHandler())  # silent unless a program asks
_ReentrantLock = type(threading.RLock())
_left_taken: WeakSet[logging.Handler] = WeakSet()
"""Those whose lock did not come in time: they are asked again, and not waited for."""


class StoreLogger(logging.Logger):
    """Logs as the logger of its name does, which programs find and set up. Any thread."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = self._known = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as ``logging`` calls it
        """Return what the known logger would; it looks into a cache that has a lock."""
        known = self._known
        return not known.disabled and self.manager.disable < level >= known.getEffectiveLevel()

    def handle(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        if threading.current_thread() is threading.main_thread():
            self._known.handle(record)
        elif self._known.filter(record):
            self.callHandlers(record)

    def callHandlers(self, record: logging.LogRecord) -> None:  # noqa: N802 - as ``handle`` calls it
        """Pass a record to the handlers of the known logger and of those above it."""
        logger: logging.Logger | None = self._known
        while logger is not None:
            for handler in logger.handlers:
                if record.levelno >= handler.level:
                    _pass(handler, record)
            logger = logger.parent if logger.propagate else None


def _pass(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Give a record to a handler; drop it where an interrupted call left the lock taken."""
    lock = handler.lock
    if not isinstance(lock, _ReentrantLock):  # it has none, or one that could not be taken twice
        handler.handle(record)
    elif lock.acquire(timeout=0 if handler in _left_taken else _SECONDS):
        _left_taken.discard(handler)
        try:
            handler.handle(record)
        finally:
            lock.release()
    else:
        _left_taken.add(handler)
