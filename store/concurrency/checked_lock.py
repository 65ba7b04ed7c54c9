"""CheckedLock: a lock that refuses the thread that holds it, and the order of a store's locks.

A signal's handler, a finalizer (``__del__``) and a callback of the garbage collector run in the
middle of whatever their thread does. A call that they make would wait for a lock of that same
thread for ever. As POSIX's ``PTHREAD_MUTEX_ERRORCHECK`` does, this one raises instead.
"""

import os
from operator import call
from typing import TYPE_CHECKING, Self

from cqstore.store.errors import NestedCallError

if TYPE_CHECKING:
    from collections.abc import Callable

    class RLock:
        """As far as it is used; typeshed's is final."""

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

    Taking and releasing are those of ``threading.RLock``, each one call into C: no exception
    between two instructions leaves it taken. ``entry`` need not be one step with them, for only the
    thread itself changes what it holds.
    """

    __slots__ = ("_holder",)
    _holder: str
    is_mine = RLock._is_owned  # noqa: SLF001 - the one way to ask
    """``lock.is_mine()``: whether the calling thread holds it."""

    def __new__(cls, holder: str) -> Self:
        """``holder`` names what holds it, for the error: "an append"."""
        lock = super().__new__(cls)
        lock._holder = holder
        return lock

    def __init__(self, holder: str) -> None:
        """See ``__new__``."""

    def entry(self) -> Self:
        """Return the lock, to be taken.

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
    """Return a lock of the whole process; a child that is forked meanwhile finds it free.

    Unless its own thread holds it: then it is still inside. Another thread did not come along, and
    would never release it. What it left half done in memory is no more than an entry not made.
    """
    lock = CheckedLock(holder)

    def free() -> None:
        if not lock.is_mine():
            lock._at_fork_reinit()  # noqa: SLF001 - as ``threading`` does for its own

    os.register_at_fork(after_in_child=free)
    return lock


class LockOrder:
    """The locks of one store: what a thread may hold as it makes a call that takes several.

    A call is refused at its begin, before anything is done that must be done whole. It is refused
    too where the thread holds a lock that comes later in the order than the first that the call
    takes: another thread may hold that first one, and wait for the later one.
    """

    def __init__(self) -> None:
        self._outer: tuple[CheckedLock, ...] = ()
        self._dispatch: tuple[CheckedLock, ...] = ()
        self._questions: tuple[Callable[[], bool], ...] = ()

    def add_outer(self, *locks: CheckedLock) -> None:
        """Add locks under which a dispatch may take place."""
        self._outer += locks

    def add(self, *locks: CheckedLock) -> None:
        """Add the lock of a dispatch, and those that are taken under it or by a wait for it."""
        self._dispatch += locks
        self._questions = tuple(lock.is_mine for lock in self._dispatch)

    @property
    def is_inside_dispatch(self) -> bool:
        """Return whether the calling thread holds a lock that a dispatch takes."""
        return True in map(call, self._questions)

    def check_dispatch(self) -> None:
        """Refuse a dispatch, or a wait for the disk.

        Raises:
            NestedCallError: the calling thread holds a lock that it takes.
        """
        if True in map(call, self._questions):  # no loop in Python: a read behind a put asks
            for lock in self._dispatch:
                lock.entry()

    def check(self) -> None:
        """Refuse a call that takes any lock of the store.

        Raises:
            NestedCallError: the calling thread holds one.
        """
        for lock in self._outer:
            lock.entry()
        self.check_dispatch()
