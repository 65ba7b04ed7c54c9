"""The files ``lock`` and ``abort``: one opener at a time, and whether the last one closed well.

The lock is POSIX's on the first byte, as RocketMQ takes it. Such a lock does not keep the same
process out, and closing *any* descriptor of the file drops it; so a registry guards this process,
and only the holder ever keeps the file open.

Source: RocketMQ ``DefaultMessageStore.start``, ``createTempFile``.
"""

import errno
import fcntl
import io
import os
import struct
import threading
from pathlib import Path

from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreLockedError, os_errors
from cqstore.store.files import (
    file_identity,
    make_folder,
    open_regular,
    reading,
    remove_file,
    replace_file,
    write_all,
)
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_CONTENT = b"lock"
_MAX_ABORT = 4096
"""Bytes of ``abort``, which holds a process id; RocketMQ's may hold none."""
_FLOCK = struct.Struct("hhqqi")  # struct flock of Linux on 64 bits, native alignment
LEAVING_SECONDS = 10.0
"""At most so long an opener waits for a store of its own process that was dropped."""
_held: dict[tuple[int, int], "_Holder"] = {}
"""The roots that this process has open: device and inode, and whose each is."""
_held_lock = threading.RLock()  # guards _held; the collector may release a lock at any line


def _after_fork() -> None:
    """Hold nothing in a child process: the system's lock is its parent's."""
    global _held_lock  # noqa: PLW0603 - a thread that did not come along may hold it
    _held_lock = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


class _Holder:
    """One opening of a store."""

    __slots__ = ("is_leaving", "left")

    def __init__(self) -> None:
        self.is_leaving = False
        """It was dropped: its release is near."""
        self.left = Latch()


class StoreLock:
    """Exclusive use of one store root, from construction to ``release``.

    Raises:
        StoreLockedError: this or another process has the store open; the pid is named if known.
        StoreIOError: the root or the file cannot be made.
    """

    def __init__(self, paths: StorePaths) -> None:
        with os_errors("create the folder of the store", paths.root):
            make_folder(paths.root)
            status = paths.root.stat()
        self._key = (status.st_dev, status.st_ino)
        self._file: io.FileIO | None = None  # closed once, however often it is asked for
        self._own = _Holder()
        try:
            self._wait_for_dropped()
            self._take(paths)
        except BaseException:
            self.release()  # here: later, with the exception, it would drop the next one's lock
            raise

    def _wait_for_dropped(self) -> None:
        """Wait until a store of this process that was dropped is released, if there is one."""
        holder = _held.get(self._key)
        if holder is not None and holder.is_leaving:
            holder.left.wait(LEAVING_SECONDS)

    def _take(self, paths: StorePaths) -> None:
        """Lock the store for this object.

        Raises:
            StoreLockedError: this process or another one has it open.
        """
        with _held_lock:
            if _held.setdefault(self._key, self._own) is not self._own:
                raise StoreLockedError("this process already has the store open", path=paths.root)
            with os_errors("open the lock file", paths.lock):
                # In one line: no other frame may keep it, which would close it later.
                self._file = io.FileIO(open_regular(paths.lock, os.O_RDWR | os.O_CREAT), "r+")
            _lock(self._file.fileno(), paths.lock)

    def release(self) -> None:
        """Release the lock. A second call does nothing, save what the first could not do."""
        with _held_lock:
            if self._file is not None:
                self._file.close()
            if _held.get(self._key) is self._own:
                del _held[self._key]
        self._own.left.set()

    @property
    def is_released(self) -> bool:
        """Return whether ``release`` has been called."""
        return self._own.left.is_set()

    def leave(self) -> None:
        """Note that ``release`` comes soon: an opener of this process waits. Takes no lock."""
        self._own.is_leaving = True

    def __del__(self) -> None:
        if hasattr(self, "_own"):
            self.release()


def _lock(fd: int, path: Path) -> None:
    """Lock the file, and write RocketMQ's content into it.

    Raises:
        StoreLockedError: another process has it.
        StoreIOError: it cannot be locked or written.
    """
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as exc:
        if exc.errno not in {errno.EACCES, errno.EAGAIN}:  # no locks here, or no more of them
            with os_errors("lock the lock file", path):
                raise
        holder = _holder(fd)
        who = f"process {holder}" if holder else "another process"
        raise StoreLockedError(f"{who} has the store open", path=path) from exc
    with os_errors("write the lock file", path):
        if os.pread(fd, len(_CONTENT) + 1, 0) != _CONTENT:
            write_all(fd, _CONTENT, 0)
            os.fsync(fd)


def _holder(fd: int) -> int:
    """Return the pid that holds the lock, 0 if it is unknown (another machine, say)."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    except OSError:
        return 0
    return int(answer[4]) if answer[0] != fcntl.F_UNLCK else 0


def locked_by(paths: StorePaths) -> int:
    """Return the pid of the process that has the store open, 0 if none or it is unknown.

    Raises:
        StoreIOError, CorruptionError: the lock file cannot be opened, or is none.
    """
    if not exists(paths.lock):
        return 0
    with os_errors("open the lock file", paths.lock):
        status = paths.root.stat()
        with _held_lock:
            if (status.st_dev, status.st_ino) in _held:  # closing a descriptor would drop the lock
                return os.getpid()
            fd = open_regular(paths.lock)  # to ask takes no right to write
            try:
                return _holder(fd)
            finally:
                os.close(fd)


def lock_stamp(paths: StorePaths) -> int:
    """Return when the lock file was written, ns; 0 without one. RocketMQ writes it at each start.

    Raises:
        StoreIOError: it cannot be looked at.
    """
    with os_errors("read the time of the lock file", paths.lock):
        return paths.lock.stat().st_mtime_ns if exists(paths.lock) else 0


def lock_identity(paths: StorePaths) -> tuple[int, int] | None:
    """Return what a copy of the store, or a start of RocketMQ's, changes; ``None`` without a lock.

    A journal that holds it is void when it differs: the store has been another's since.
    """
    return file_identity(paths.lock)


def refuse_if_open(paths: StorePaths) -> None:
    """Refuse if the store is open. Changes nothing.

    Raises:
        StoreLockedError: it is.
        StoreIOError: the lock file cannot be opened.
    """
    holder = locked_by(paths)
    if holder:
        raise StoreLockedError(f"process {holder} has the store open", path=paths.root)


def mark_open(paths: StorePaths) -> None:
    """Write ``abort``, durably: until ``mark_closed`` the store counts as crashed.

    The previous content goes to ``abort.bak``, empty after a clean stop.
    """
    with os_errors("write the abort marker", paths.abort):
        previous = _content(paths.abort) if exists(paths.abort) else b""
        replace_file(paths.abort_backup, previous)
        replace_file(paths.abort, str(os.getpid()).encode())


def _content(abort: Path) -> bytes:
    with reading(abort) as file:
        return file.read(_MAX_ABORT)


def mark_closed(paths: StorePaths) -> None:
    """Remove ``abort``, durably: everything is on disk."""
    with os_errors("remove the abort marker", paths.abort):
        remove_file(paths.abort)
