"""CheckedLock: a lock that refuses the thread that holds it, and the order of a store's locks.

A signal handler, a finalizer (``__del__``) and a callback of the garbage collector run in the
middle of any code of their thread. A call from one of these would wait forever for a lock that the
same thread holds. Like POSIX's ``PTHREAD_MUTEX_ERRORCHECK``, this lock raises an error instead.
"""

import os
from operator import call
from typing import TYPE_CHECKING, Self

from cqstore.store.errors import NestedCallError

if TYPE_CHECKING:
    from collections.abc import Callable

    class RLock:
        """The methods in use; typeshed's class is final."""

        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _at_fork_reinit(self) -> None: ...
        def _release_save(self) -> tuple[int, int]: ...
        def _acquire_restore(self, state: tuple[int, int]) -> None: ...
else:
    from _thread import RLock


class CheckedLock(RLock):
    """A lock for ``with lock.entry():``. Any thread.

    It is acquired and released by ``threading.RLock``, each with one call into C: no exception
    between two instructions leaves it held. ``entry`` need not be atomic with that, because only
    the thread itself changes what it holds.
    """

    __slots__ = ("_holder",)
    _holder: str
    is_mine = RLock._is_owned  # noqa: SLF001 - the one way to ask
    """``lock.is_mine()``: whether the calling thread holds it."""

    def __new__(cls, holder: str) -> Self:
        """``holder`` names the operation that holds it, for the error: "an append"."""
        lock = super().__new__(cls)
        lock._holder = holder
        return lock

    def __init__(self, holder: str) -> None:
        """See ``__new__``."""

    def entry(self) -> Self:
        """Return the lock, to be acquired.

        Raises:
            NestedCallError: the calling thread holds it already.
        """
        if self.is_mine():
            raise NestedCallError(
                f"this call would deadlock: its thread is already inside {self._holder}, and the"
                " call came from there (a signal's handler, a finalizer or a callback of the"
                " garbage collector)"
            )
        return self


def process_lock(holder: str) -> CheckedLock:
    """Return a lock of the whole process; in a forked child it is free.

    Unless the forking thread holds it: then it is still held. Another thread does not exist in the
    child, and would never release it. Unfinished changes of such a thread are no more than a
    missing entry.
    """
    lock = CheckedLock(holder)

    def free() -> None:
        if not lock.is_mine():
            lock._at_fork_reinit()  # noqa: SLF001 - as ``threading`` does for its own

    os.register_at_fork(after_in_child=free)
    return lock


class LockOrder:
    """The locks of one store, and which of them a thread may hold at a call that takes several.

    A call is refused at its start, before any step that must not be left unfinished. It is also
    refused if the thread holds a lock that is later in the order than the first one that the call
    takes: another thread may hold that first one, and wait for the later one.
    """

    def __init__(self) -> None:
        self._outer: tuple[CheckedLock, ...] = ()
        self._dispatch: tuple[CheckedLock, ...] = ()
        self._questions: tuple[Callable[[], bool], ...] = ()

    def add_outer(self, *locks: CheckedLock) -> None:
        """Add locks that may be held during a dispatch."""
        self._outer += locks

    def add(self, *locks: CheckedLock) -> None:
        """Add the lock of a dispatch, and the locks taken under it or while waiting for it."""
        self._dispatch += locks
        self._questions = tuple(lock.is_mine for lock in self._dispatch)

    @property
    def is_inside_dispatch(self) -> bool:
        """Return whether the calling thread holds a lock that a dispatch takes."""
        return True in map(call, self._questions)

    def check_dispatch(self) -> None:
        """Refuse a dispatch, or a wait for the disk.

        Raises:
            NestedCallError: the calling thread holds a lock that a dispatch takes.
        """
        if True in map(call, self._questions):  # no Python loop: reads after a put call this
            for lock in self._dispatch:
                lock.entry()

    def check(self) -> None:
        """Refuse a call that takes any lock of the store.

        Raises:
            NestedCallError: the calling thread holds a lock of the store.
        """
        for lock in self._outer:
            lock.entry()
        self.check_dispatch()
