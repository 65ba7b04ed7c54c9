"""CallGate: the guard around every call into RocksDB.

It refuses calls after ``close`` and in a child process, and translates exceptions of the binding
into this project's errors. ``close`` waits for running calls, so a database is never released while
a thread reads it. Each thread holds its own lock during a call, which is released even if an
exception ends the call at any line.
"""

import os
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from cqstore.cq_rocksdb.engine.errors import rocksdb_error
from cqstore.store.errors import StoreClosedError, StoreError, StoreLockedError, StoreStateError

P = ParamSpec("P")
R = TypeVar("R")


class CallGate:
    """Guards every call on one open database. Any number of threads may be in a call."""

    def __init__(self, folder: Path, is_rocksdbs: Callable[[BaseException], bool]) -> None:
        """``is_rocksdbs`` returns whether the text of an exception is a status of RocksDB."""
        self._folder = folder
        self._is_rocksdbs = is_rocksdbs
        self._locks: dict[int, threading.RLock] = {}  # by thread; idents may be reused
        self._released = self._forked = False
        self._releasing = False  # set before the first release is called, never unset
        self.shut = False
        """Whether calls are refused; checked by a thread that holds its lock."""
        _gates.add(self)

    def lock(self) -> threading.RLock:
        """Return the lock of the calling thread."""
        thread = threading.get_ident()
        return self._locks.get(thread) or self._locks.setdefault(thread, threading.RLock())

    @property
    def is_inside(self) -> bool:
        """Return whether the calling thread is in the middle of a call."""
        return self.lock()._is_owned()  # type: ignore[attr-defined,no-any-return] # noqa: SLF001

    def refuse(self) -> None:
        """Raise the error that explains why no call is possible.

        Raises:
            StoreStateError: the process has forked since the database was opened.
            StoreClosedError: the database has been closed.
        """
        if self._forked:  # the fork did not copy its threads
            raise StoreStateError(
                "the RocksDB queues were opened before a fork: open the store again",
                path=self._folder,
            )
        raise StoreClosedError("the RocksDB queues are closed", path=self._folder)

    def close(self, flush: Callable[[], object] | None, *releases: Callable[[], object]) -> None:
        """Refuse further calls, wait for running ones, flush and release the database.

        All ``releases`` are called, even if an earlier one fails. If interrupted, the next
        ``close`` calls them again, without a flush, because the database may already be released.
        """
        self.shut = True
        for lock in list(self._locks.values()):
            with lock:
                pass
        if self._released or self._forked:
            return
        flushes, self._releasing = not self._releasing, True
        with self.translation(), ExitStack() as letting_go:
            for release in reversed(releases):
                letting_go.callback(release)
            if flush is not None and flushes:
                flush()
        self._released = True

    def leave_to_parent(self) -> None:
        """Refuse all calls: this is a child of the process that opened the database."""
        self._forked = self.shut = True

    @contextmanager
    def translation(self) -> Iterator[None]:
        """Translate the errors of the block."""
        try:
            yield
        except Exception as exc:
            self.raise_translated(exc)
            raise

    def raise_closed(self, exc: BaseException) -> None:
        """Raise an error if the calling thread closed the database in its call (signal handler).

        Raises:
            StoreClosedError: the database was closed, which caused ``exc``.
        """
        if self._releasing and isinstance(exc, Exception) and not isinstance(exc, StoreError):
            traceback.clear_frames(exc.__traceback__)
            raise StoreClosedError(
                "the RocksDB queues were closed during the call", path=self._folder
            ) from exc

    def raise_translated(self, exc: BaseException) -> None:
        """Raise the error of this project for ``exc``; return if ``exc`` is not from RocksDB.

        Raises:
            StoreLockedError: another process, or another object, has the database open.
            RocksDBError: RocksDB reports another error.
        """
        # An exception that a caller keeps must not keep iterators alive.
        traceback.clear_frames(exc.__traceback__)
        if not self._is_rocksdbs(exc):
            return
        text, folder = str(exc), self._folder
        if "lock hold by" in text or "While lock file" in text:
            raise StoreLockedError(
                f"the RocksDB queues are already in use: {text}", path=folder
            ) from exc
        raise rocksdb_error(text, folder) from exc


class Gated(Protocol):
    """An engine whose calls go through a gate."""

    _gate: CallGate


G = TypeVar("G", bound=Gated)


def gated(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorate a method of an engine so that it runs as one guarded call into RocksDB."""

    @wraps(method)
    def call(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        gate = self._gate
        try:
            with gate.lock():
                if gate.shut:
                    gate.refuse()
                return method(self, *args, **kwargs)
        except BaseException as exc:
            gate.raise_closed(exc)
            gate.raise_translated(exc)
            raise

    return call


_gates: "weakref.WeakSet[CallGate]" = weakref.WeakSet()


def _after_fork() -> None:
    for gate in _gates:
        gate.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
