"""The databases that this process has open for writing.

RocksDB's own lock does not keep the same process out once two RocksDB libraries live in it: each
has its own table of locks, and a file lock of the system belongs to the process.
"""

import ctypes
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cqstore.store.concurrency.checked_lock import process_lock
from cqstore.store.errors import StoreLockedError, StoreStateError, os_errors

_lock = process_lock("the opening of a RocksDB database")  # guards _claims
_claims: "dict[tuple[int, int], weakref.ref[Claim]]" = {}
"""The last claim of each folder, by device and inode; it counts while it is held."""
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

    A claim that is garbage is not held: an exception may come before its owner has it.

    Raises:
        StoreLockedError: this process has it open for writing already.
        NestedCallError: this thread is inside another claim.
    """

    def __init__(self, folder: Path) -> None:
        with os_errors("access the folder", folder):
            status = folder.stat()
        self._is_held = True
        try:
            self._register((status.st_dev, status.st_ino), folder)
        except BaseException:
            self._is_held = False  # here: the exception keeps this frame, and the frame the claim
            raise

    def _register(self, key: tuple[int, int], folder: Path) -> None:
        """Register the database as open in this process.

        Raises:
            StoreLockedError: it is already.
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
        """Give the database up, in one step and without a lock. A second call does nothing."""
        self._is_held = False


def _is_held(claim: "weakref.ref[Claim]") -> bool:
    held = claim()
    return held is not None and held._is_held  # noqa: SLF001 - of this module


class Releasable(Protocol):
    """Something that is held until it is released, once or again."""

    def release(self) -> object:
        """Give up what is held. A second call does nothing."""


class HeldResources:
    """What an open database holds.

    Attributes, each set by the line that makes its value: a method would have a frame, which an
    exception before its first line would keep, and with it a value that no ``release`` reaches.
    """

    claim: Releasable | None = None
    """Read-write."""
    private: Releasable | None = None
    """Read-only."""

    def release(self) -> None:
        """Release everything; if interrupted, the next call continues."""
        for each in (self.private, self.claim):
            if each is not None:
                each.release()


def _after_fork() -> None:
    """Have a child of a process that used RocksDB end without RocksDB's destructors.

    They run when a process exits, wait for threads that did not come along, and crash. So the last
    thing that such a child does is ``_exit``, after the flush of the buffers of C.
    """
    if not _opened_by:
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # of glibc; its functions are called with the exit code
        libc["on_exit"](libc["_exit"], None)
        libc["__cxa_atexit"](libc["fflush"], None, None)


os.register_at_fork(after_in_child=_after_fork)
