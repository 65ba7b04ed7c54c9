"""The databases that this process has open for writing.

RocksDB's own lock does not protect against the same process if two RocksDB libraries are loaded:
each has its own table of locks, and a file lock of the system belongs to the process.
"""

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from cqstore.store.concurrency.checked_lock import process_lock
from cqstore.store.errors import StoreLockedError, StoreStateError, os_errors

_lock = process_lock("the opening of a RocksDB database")  # guards _claims
_claims: "dict[tuple[int, int], weakref.ref[Claim]]" = {}
"""The last claim on each folder, by device and inode; valid while it is held."""
_used_by: set[tuple[int, "Library"]] = set()
"""Processes that have opened a database, and by which library: this one, or an ancestor of it."""


class Library(Enum):
    """The libraries that contain RocksDB. Each has its own threads."""

    COMPILED = auto()
    ROCKSDICT = auto()


def note_use(library: Library) -> None:
    """Record that ``library`` is used in this process, by a read that needs none of its threads."""
    _used_by.add((os.getpid(), library))


@contextmanager
def opening(folder: Path, library: Library) -> Iterator[None]:
    """Record that ``library`` is used in this process.

    Raises:
        StoreStateError: it was used in the process from which this one was forked. The fork did not
            copy its threads, so it would wait for them forever.
    """
    if any(used is library and pid != os.getpid() for pid, used in _used_by):
        raise StoreStateError(
            "RocksDB was in use before this process was forked: start a new process for it (spawn)",
            path=folder,
        )
    note_use(library)
    yield


class Claim:
    """The database in ``folder``, known by device and inode, held until ``release``.

    A garbage-collected claim is not held: an exception may occur before its owner stores it.

    Raises:
        StoreLockedError: the database is already open for writing in this process.
        NestedCallError: this thread is inside another claim.
    """

    def __init__(self, folder: Path) -> None:
        with os_errors("access the folder", folder):
            status = folder.stat()
        self._is_held = True
        try:
            self._register((status.st_dev, status.st_ino), folder)
        except BaseException:
            self._is_held = False  # here, as the exception's frame keeps the claim alive
            raise

    def _register(self, key: tuple[int, int], folder: Path) -> None:
        """Register the database as open in this process.

        Raises:
            StoreLockedError: the database is already open.
        """
        with _lock.entry():
            for other in [each for each, claim in _claims.items() if not _is_held(claim)]:
                del _claims[other]
            if key in _claims:
                raise StoreLockedError(
                    "the RocksDB queues are already in use by this process", path=folder
                )
            _claims[key] = weakref.ref(self)

    def release(self) -> None:
        """Release the database, in one step and without a lock. A second call does nothing."""
        self._is_held = False


def _is_held(claim: "weakref.ref[Claim]") -> bool:
    held = claim()
    return held is not None and held._is_held  # noqa: SLF001 - of this module


class Releasable(Protocol):
    """A resource with a release method that may be called more than once."""

    def release(self) -> object:
        """Release the resource. A second call does nothing."""


class HeldResources:
    """The resources of an open database.

    Each attribute is set by the line that creates its value. A setter method would have a frame,
    and an exception before its first line would keep a value there that no ``release`` reaches.
    """

    claim: Releasable | None = None
    """Of a read-write open."""
    private: Releasable | None = None
    """Of a read-only open."""

    def release(self) -> None:
        """Release everything; if interrupted, the next call continues."""
        for each in (self.private, self.claim):
            if each is not None:
                each.release()


def _after_fork() -> None:
    """Make a child of a process that used RocksDB exit without RocksDB's destructors.

    The destructors run at exit, wait for threads that the fork did not copy, and crash. So such a
    child calls ``_exit`` last, after it has flushed the C buffers.
    """
    if not _used_by:
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc only; handlers receive the exit code
        libc["on_exit"](libc["_exit"], None)
        libc["__cxa_atexit"](libc["fflush"], None, None)


os.register_at_fork(after_in_child=_after_fork)
