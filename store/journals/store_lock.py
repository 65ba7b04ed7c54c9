"""The files ``lock`` and ``abort``: one opener at a time, and whether the last close was clean.

The lock is a POSIX lock on the first byte, as RocketMQ takes it. Such a lock does not exclude the
same process, and closing *any* descriptor of the file releases it. So a registry protects within
this process, and only the holder ever keeps the file open.

Source: RocketMQ ``DefaultMessageStore.start``, ``createTempFile``.
"""

import errno
import fcntl
import io
import os
import struct
import threading
from pathlib import Path
from typing import Self

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
"""Size limit of ``abort``, which contains a process id; RocketMQ's may be empty."""
_FLOCK = struct.Struct("hhqqi")  # struct flock of 64-bit Linux, native alignment
LEAVING_SECONDS = 10.0
"""Maximum time that an opener waits for a store of its own process that was dropped."""
_held: dict[tuple[int, int], "_Holder"] = {}
"""The roots that this process has open: device and inode, and the holder of each."""
_held_lock = threading.RLock()  # guards _held; the garbage collector may release a lock at any line


def _after_fork() -> None:
    """Clear the registry in a child process: the parent holds the system's lock."""
    global _held_lock  # noqa: PLW0603 - a thread that did not come along may hold it
    _held_lock = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


class _Holder:
    """One opening of a store."""

    __slots__ = ("is_leaving", "left")

    def __init__(self) -> None:
        self.is_leaving = False
        """The store was dropped, and is released soon."""
        self.left = Latch()


class StoreLock:
    """Exclusive use of one store root, from construction to ``release`` or the end of a block.

    Raises:
        StoreLockedError: this or another process has the store open; the pid is in the error if
            known.
        StoreIOError: the root or the file cannot be created.
    """

    def __init__(self, paths: StorePaths) -> None:
        with os_errors("create the folder of the store", paths.root):
            make_folder(paths.root)
            status = paths.root.stat()
        self._key = (status.st_dev, status.st_ino)
        self._file: io.FileIO | None = None  # closed once, even if requested several times
        self._own = _Holder()
        try:
            self._wait_for_dropped()
            self._take(paths)
        except BaseException:
            self.release()  # not later: that would release the lock of the next opener
            raise

    def _wait_for_dropped(self) -> None:
        """Wait until a dropped store of this process is released, if there is one."""
        holder = _held.get(self._key)
        if holder is not None and holder.is_leaving:
            holder.left.wait(LEAVING_SECONDS)

    def _take(self, paths: StorePaths) -> None:
        """Lock the store for this object.

        Raises:
            StoreLockedError: this process or another one has the store open.
        """
        with _held_lock:
            if _held.setdefault(self._key, self._own) is not self._own:
                raise StoreLockedError("this process already has the store open", path=paths.root)
            with os_errors("open the lock file", paths.lock):
                # In one line: no other frame may keep it, which would close it later.
                self._file = io.FileIO(open_regular(paths.lock, os.O_RDWR | os.O_CREAT), "r+")
            _lock(self._file.fileno(), paths.lock)

    def release(self) -> None:
        """Release the lock. A second call does nothing, except what the first could not do."""
        with _held_lock:
            if self._file is not None:
                self._file.close()
            if _held.get(self._key) is self._own:
                del _held[self._key]
        self._own.left.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def is_released(self) -> bool:
        """Return whether ``release`` has been called."""
        return self._own.left.is_set()

    def leave(self) -> None:
        """Record that ``release`` follows soon: an opener in this process waits. Takes no lock."""
        self._own.is_leaving = True

    def __del__(self) -> None:
        if hasattr(self, "_own"):
            self.release()


def _lock(fd: int, path: Path) -> None:
    """Lock the file, and write RocketMQ's content into it.

    Raises:
        StoreLockedError: another process holds the lock.
        StoreIOError: the file cannot be locked or written.
    """
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as exc:
        if exc.errno not in {errno.EACCES, errno.EAGAIN}:  # locks not supported, or exhausted
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
    """Return the pid that holds the lock, 0 if unknown (for example on another machine)."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        answer = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    except OSError:
        return 0
    return int(answer[4]) if answer[0] != fcntl.F_UNLCK else 0


def locked_by(paths: StorePaths) -> int:
    """Return the pid of the process that has the store open, 0 if none or unknown.

    Raises:
        StoreIOError, CorruptionError: the lock file cannot be opened, or is not a regular file.
    """
    if not exists(paths.lock):
        return 0
    with os_errors("open the lock file", paths.lock):
        status = paths.root.stat()
        with _held_lock:
            if (status.st_dev, status.st_ino) in _held:  # closing a descriptor would unlock it
                return os.getpid()
            fd = open_regular(paths.lock)  # reading the lock needs no write permission
            try:
                return _holder(fd)
            finally:
                os.close(fd)


def lock_stamp(paths: StorePaths) -> int:
    """Return when the lock file was written, ns; 0 without one. RocketMQ writes it at each start.

    Raises:
        StoreIOError: the file's status cannot be read.
    """
    with os_errors("read the time of the lock file", paths.lock):
        return paths.lock.stat().st_mtime_ns if exists(paths.lock) else 0


def lock_identity(paths: StorePaths) -> tuple[int, int] | None:
    """Return a value that differs in a copy, or after a start of RocketMQ; ``None``: no lock file.

    A journal with another value is invalid: another program has opened the store since.
    """
    return file_identity(paths.lock)


def refuse_if_open(paths: StorePaths) -> None:
    """Refuse if the store is open. Changes nothing.

    Raises:
        StoreLockedError: the store is open.
        StoreIOError: the lock file cannot be opened.
    """
    holder = locked_by(paths)
    if holder:
        raise StoreLockedError(f"process {holder} has the store open", path=paths.root)


def mark_open(paths: StorePaths) -> None:
    """Write ``abort``, durably: until ``mark_closed`` the store counts as crashed.

    The previous content is written to ``abort.bak``, which is empty after a clean stop.
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
