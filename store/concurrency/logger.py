"""StoreLogger: logging in which no thread of a store waits for a caller that was interrupted.

Before Python 3.13 ``logging`` acquires the lock of a handler in Python code. An exception after
that line (raised by a signal handler) leaves the lock held forever by the main thread, which
continues to log. Any other thread would wait forever at its next log line, with the store's locks
that it holds, and ``close`` for that thread. So a thread waits at most a second here; then the
handler does not get the line. Other waits of a handler are not handled.
"""

import logging
import threading
from weakref import WeakSet

_SECONDS = 1.0
logging.getLogger("cqstore").addHandler(logging.NullHandler())  # silent by default
_ReentrantLock = type(threading.RLock())
_left_taken: WeakSet[logging.Handler] = WeakSet()
"""Handlers whose lock timed out: later attempts do not wait."""


class StoreLogger(logging.Logger):
    """Logs like the standard logger of its name, which programs configure. Any thread."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = self._known = logging.getLogger(name)

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as ``logging`` calls it
        """Return the standard logger's result without its cache, which has a lock."""
        known = self._known
        return not known.disabled and self.manager.disable < level >= known.getEffectiveLevel()

    def handle(self, record: logging.LogRecord) -> None:
        """Handle a record."""
        if threading.current_thread() is threading.main_thread():
            self._known.handle(record)
        elif self._known.filter(record):
            self.callHandlers(record)

    def callHandlers(self, record: logging.LogRecord) -> None:  # noqa: N802 - as ``handle`` calls it
        """Pass a record to the handlers of the standard logger and of its parents."""
        logger: logging.Logger | None = self._known
        while logger is not None:
            for handler in logger.handlers:
                if record.levelno >= handler.level:
                    _pass(handler, record)
            logger = logger.parent if logger.propagate else None


def _pass(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Pass a record to a handler; drop it if an interrupted call left the lock held."""
    lock = handler.lock
    if not isinstance(lock, _ReentrantLock):  # no lock, or one that cannot be acquired twice
        handler.handle(record)
    elif lock.acquire(timeout=0 if handler in _left_taken else _SECONDS):
        _left_taken.discard(handler)
        try:
            handler.handle(record)
        finally:
            lock.release()
    else:
        _left_taken.add(handler)
