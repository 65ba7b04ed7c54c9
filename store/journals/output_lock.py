"""Locks of what a command writes: one writer at a time, on a file of their own that none reads."""

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
"""The folder takes no file: neither can it take the output, and the writer's error says more."""
_TRIES = 100
"""Each finds that a holder has removed the file just before."""


def lock_file(path: Path, refusal: str) -> int:
    """Return the descriptor of ``path``, which is made if need be and locked until it is closed.

    The holder may remove the file before it closes the descriptor.

    Raises:
        StoreLockedError: another process, or another call in this one, holds the lock.
        OSError: the file cannot be made or locked.
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
        os.close(fd)  # its former holder has removed it since
    raise StoreLockedError(refusal, path=path)


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def output_lock(target: Path) -> Iterator[None]:
    """Keep other processes from writing ``target``, a file or folder, while the block runs.

    The lock is an empty file beside it, ``.NAME.cqstore-lock``. A killed process leaves that file,
    unlocked; the next writer takes it over and removes it.

    Raises:
        StoreLockedError: another process writes it.
        StoreIOError: it cannot be locked.
    """
    if target.resolve() == Path("/"):  # which is there: its writer refuses it
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
                if not os.fstat(fd).st_size:  # else it is a user's file of that name
                    path.unlink()
            os.close(fd)
