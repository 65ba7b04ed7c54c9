"""Locks of a command's output: one writer at a time, with a separate lock file."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cqstore.store.errors import StoreLockedError, os_errors
from cqstore.store.files import open_regular
from cqstore.store.paths import beside

_HELD = {errno.EAGAIN, errno.EACCES}
_NOT_WRITABLE = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS}
"""The folder accepts no file: writing the output fails too, with a more precise error."""
_TRIES = 100
"""In each attempt, a holder has removed the file just before."""


def lock_file(path: Path, refusal: str) -> int:
    """Return the descriptor of ``path``, created if missing, and locked until it is closed.

    The holder may remove the file before it closes the descriptor.

    Raises:
        StoreLockedError: another process, or another call in this process, holds the lock.
        OSError: the file cannot be created or locked.
    """
    for _ in range(_TRIES):
        fd = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, fd):
                return fd
        except BaseException as exc:
            os.close(fd)
            if isinstance(exc, OSError) and exc.errno in _HELD:
                raise StoreLockedError(refusal, path=path) from exc
            raise
        os.close(fd)  # the previous holder has removed it meanwhile
    raise StoreLockedError(refusal, path=path)


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def output_lock(target: Path) -> Iterator[None]:
    """Keep other processes from writing ``target``, a file or folder, during the block.

    The lock is an empty file next to it, ``.NAME.cqstore-lock``. A killed process leaves that file,
    unlocked; the next writer reuses and removes it.

    Raises:
        StoreLockedError: another process writes ``target``.
        StoreIOError: ``target`` cannot be locked.
    """
    if target.resolve() == Path("/"):  # it exists: its writer refuses it
        yield
        return
    path = beside(target, ".cqstore-lock")
    path = path.with_name(f".{path.name}")
    with os_errors("lock the output", target):
        try:
            fd = lock_file(path, "another process is writing to this path")
        except StoreLockedError as exc:
            exc.path = target
            raise
        except OSError as exc:
            if exc.errno not in _NOT_WRITABLE:
                raise
            fd = None
    try:
        yield
    finally:
        if fd is not None:
            with suppress(OSError):
                if not os.fstat(fd).st_size:  # otherwise it is a user's file with that name
                    path.unlink()
            os.close(fd)
