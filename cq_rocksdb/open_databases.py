"""The databases that this process has open for writing.

RocksDB's own lock does not keep the same process out once two RocksDB libraries live in it: each
has its own table of locks, and a file lock of the system belongs to the process.
"""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from store.errors import StoreLockedError, StoreStateError, os_errors

_lock = threading.Lock()  # guards _open
_open: set[tuple[int, int]] = set()
_opened_by: set[int] = set()
"""Processes that have opened a database: this one, or one that it is a child of."""


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Note that RocksDB is used in this process.

    Raises:
        StoreStateError: it was used in the process that this one was forked from. Its threads did
            not come along, and it would wait for them for ever.
    """
    if _opened_by - {os.getpid()}:
        raise StoreStateError(
            "RocksDB was in use before this process was forked: start a new process for it (spawn)",
            path=folder,
        )
    _opened_by.add(os.getpid())
    yield


class Claim:
    """The database in ``folder``, known by device and inode, held until ``release``.

    Raises:
        StoreLockedError: this process has it open for writing already.
    """

    def __init__(self, folder: Path) -> None:
        with os_errors("look at", folder):
            status = folder.stat()
        self._key: tuple[int, int] | None = None
        key = (status.st_dev, status.st_ino)
        with _lock:
            if key in _open:
                raise StoreLockedError(
                    "the RocksDB queues are open elsewhere: in this process", path=folder
                )
            self._key = key
            _open.add(key)

    def release(self) -> None:
        """Let it go. A second call does nothing."""
        with _lock:
            if self._key is not None:
                _open.discard(self._key)
                self._key = None


class Releasable(Protocol):
    """Something that is held until it is released, once or again."""

    def release(self) -> object:
        """Let it go. A second call does nothing."""


H = TypeVar("H", bound=Releasable)


class Held:
    """What an open database holds; as a context it is let go where the opening fails."""

    def __init__(self) -> None:
        self._things: list[Releasable] = []

    def add(self, thing: H) -> H:
        """Hold ``thing`` too; return it."""
        self._things.append(thing)
        return thing

    def release(self) -> None:
        """Let go of everything; cut short, it goes on with the next call."""
        for thing in self._things:
            thing.release()

    def __enter__(self) -> None:
        """Begin the opening."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.release()


def _after_fork() -> None:
    """Let a child of a process that used RocksDB end without RocksDB's destructors.

    They run when a process exits, wait for threads that did not come along, and crash. So the last
    thing that such a child does is ``_exit``, behind the flush of what C has buffered.
    """
    if not _opened_by:
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # of glibc; its functions are called with the exit code
        libc["on_exit"](libc["_exit"], None)
        libc["__cxa_atexit"](libc["fflush"], None, None)


os.register_at_fork(after_in_child=_after_fork)
