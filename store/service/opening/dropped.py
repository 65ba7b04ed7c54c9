"""Handling of a store that is dropped without ``close``: it is left as after a kill.

A finalizer runs in any thread, in the middle of any line: also in one of the store's own threads,
which may hold a lock of the store. So it takes no lock itself. It starts a thread that ends the
store's threads and releases its resources. The finalizer waits for that thread for a moment, and an
opener of the same store in this process waits until it is done.
"""

import _thread
import atexit
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.thread import StoreThread, is_store_thread
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.service.opening.components import StoreComponents
from cqstore.store.service.runtime.watched_thread import EXIT_SECONDS

_LOG = StoreLogger(__name__)
DROP_SECONDS = 2.0
"""Maximum wait of the finalizer: a thread of the store may wait for a lock of the caller."""


@runtime_checkable
class _Halts(Protocol):
    """A service whose ``stop`` writes data."""

    def halt(self) -> None:
        """End the threads as ``stop`` does, without writing."""


class _Remains:
    """The parts of an open store that must be released after it is dropped.

    Not the components themselves: put hooks may refer to the store, which would then never be
    dropped.
    """

    def __init__(self, components: StoreComponents) -> None:
        self._root = components.paths.root
        self._state, self._lock = components.state, components.lock
        self._attached, self._services = components.attached, components.services
        self._closes = components.closes(flush_index=False, dropped=True)

    def drop(self) -> None:
        """Release everything without writing. In a child of the process: does nothing."""
        if self._state.forked or (self._lock is not None and self._lock.is_released):
            return
        done = Latch()
        if self._lock is not None:
            self._lock.leave()
        _start(self._release_all, done)
        try:
            self._warn("its threads and files are released and nothing more is written")
        finally:
            if not is_store_thread():  # the store may wait for this very thread
                done.wait(DROP_SECONDS)

    def leave(self) -> None:
        """End the threads at the end of the interpreter; the process releases the rest.

        So an exit handler that runs later can still close the store.
        """
        if self._state.forked or self._state.closed:
            return
        done = Latch()
        _start(self._halt, done)
        try:
            self._warn("the interpreter ends")
        finally:
            done.wait(EXIT_SECONDS)

    def _warn(self, what: str) -> None:
        recovers = "" if self._lock is None else ", the next open recovers"
        text = f"store {self._root} was not closed: {what}{recovers}. Close it, or use it in a with"
        warnings.warn(text + " block", ResourceWarning, stacklevel=3)

    def _release_all(self) -> None:
        self._halt()
        self._state.close()
        for close in self._closes:
            self._try(close)
        if self._lock is not None:
            self._lock.release()

    def _halt(self) -> None:
        """End the threads, in reverse order of their start."""
        for attached in tuple(self._attached.values()):
            self._try(attached.stop)
        for each in reversed(self._services):
            self._try(each.halt if isinstance(each, _Halts) else each.stop)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as exc:  # noqa: BLE001 - the others must be released, too
            _LOG.warning("%s was dropped, and not all of it could be released: %s", self._root, exc)


_open: "weakref.WeakSet[_Remains]" = weakref.WeakSet()


def when_dropped(store: object, components: StoreComponents) -> Callable[[], object]:
    """Release ``components`` once ``store`` is collected, unless the result is called before."""
    remains = _Remains(components)
    _open.add(remains)
    finalizer = weakref.finalize(store, remains.drop)
    finalizer.atexit = False
    return finalizer.detach


def _start(work: Callable[[], None], done: Latch) -> None:
    """Run ``work`` in a thread, started without the lock of ``threading``."""

    def run() -> None:
        try:
            work()
        finally:
            done.set()

    def start() -> None:
        StoreThread("cqstore-drop", run).start()

    try:
        _thread.start_new_thread(start, ())
    except RuntimeError:  # the interpreter is ending, or the system has no more threads
        done.set()


@atexit.register
def _at_exit() -> None:
    for remains in [*_open]:
        with suppress(Warning):  # the other ones must be ended too
            remains.leave()
