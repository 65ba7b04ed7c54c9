"""Errors the store raises, as a tree.

* StoreError
  * StoreConfigError
  * StoreStateError
    * StoreClosedError
    * StoreLockedError
    * StoreFailedError
    * NestedCallError
    * ReadOnlyStoreError
  * RefusedStoreError
  * IllegalMessageError
    * PropertiesTooLongError
  * NoSuchQueueError
  * NoSuchMessageError
  * StoreIOError
    * DiskFullError
      * RetryableDiskFullError
  * PutHookError
  * DispatcherError
  * CorruptionError
    * MagicCodeError
    * ChecksumError
    * TruncatedRecordError
    * QueueGapError
  * UnsupportedFormatError
  * ConsumeQueueError (its RocksDB child lives in ``cq_rocksdb``)

Outcomes that a caller expects (a full queue, an offset past the end) are values, see
``PutMessageStatus`` and ``GetMessageStatus``; only faults are raised. Every context
argument has a default, so that the errors survive pickling.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """Base of every error this project raises.

    ``reason`` is a whole sentence without its place; ``path`` and ``phy_offset`` (bytes from the
    start of the commit log) or ``position`` (bytes inside ``path``) say where.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: Path | None = None,
        phy_offset: int | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.phy_offset = phy_offset
        self.position = position

    def __str__(self) -> str:
        where = [str(self.path)] if self.path is not None else []
        if self.position is not None:
            where.append(f"position {self.position}")
        if self.phy_offset is not None:
            where.append(f"phy_offset {self.phy_offset}")
        text = f"{self.reason} ({', '.join(where)})" if where else self.reason
        return text.encode("utf-8", "backslashreplace").decode()  # of names that are no text


class StoreConfigError(StoreError):
    """A setting makes no sense; the sentence names it."""


class StoreStateError(StoreError):
    """The store is not in a state for this call."""


class StoreClosedError(StoreStateError):
    """The store has been closed."""


class StoreLockedError(StoreStateError):
    """Another opener, in this process or another one, holds the store."""


class StoreFailedError(StoreStateError):
    """An earlier write or flush failed: close the store and open it again."""


class NestedCallError(StoreStateError):
    """The call came from inside another call of the same thread, and would wait for that one.

    A signal's handler, a finalizer or a callback of the garbage collector made it. Nothing was
    done; the outer call goes on if the error is caught there.
    """


class ReadOnlyStoreError(StoreStateError):
    """A write was asked of a store that was opened read-only."""


class RefusedStoreError(StoreError):
    """The directory holds something that must not be opened this way; nothing was changed."""


class IllegalMessageError(StoreError):
    """A message or a name cannot be stored as it is."""


class PropertiesTooLongError(IllegalMessageError):
    """The properties do not fit their two-byte length."""


class NoSuchQueueError(StoreError):
    """A command names a topic or a queue that the store does not have."""


class NoSuchMessageError(StoreError):
    """A command names a message that the store does not have."""


class StoreIOError(StoreError):
    """The operating system refused an operation."""


class DiskFullError(StoreIOError):
    """No space is left for a file that has to grow."""


class RetryableDiskFullError(DiskFullError):
    """The same, and the call can be repeated when there is room: nothing is lost, nothing failed.

    Bytes behind the end of a file may have been written, which the repetition writes again.
    """


class PutHookError(StoreError):
    """A put hook failed, or answered what no hook may: nothing was put."""


class DispatcherError(StoreError):
    """A dispatcher failed at a record: the dispatch waits, and calls it with that record again."""


STALLING = (RetryableDiskFullError, DispatcherError)
"""What stalls a dispatch: a later one begins where it ended, nothing is lost, nothing failed."""


class CorruptionError(StoreError):
    """Stored bytes break the format."""

    def __init__(
        self,
        reason: str,
        *,
        path: Path | None = None,
        phy_offset: int | None = None,
        position: int | None = None,
        expected: object = None,
        got: object = None,
    ) -> None:
        super().__init__(reason, path=path, phy_offset=phy_offset, position=position)
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        text = super().__str__()
        told = {"expected": self.expected, "found": self.got}
        facts = ", ".join(f"{name} {fact}" for name, fact in told.items() if fact is not None)
        return f"{text}: {facts}" if facts else text


class MagicCodeError(CorruptionError):
    """A record does not start with a known magic code."""


class ChecksumError(CorruptionError):
    """A checksum does not match the bytes that it guards."""


class TruncatedRecordError(CorruptionError):
    """A record or file ends before its own length says."""


class QueueGapError(CorruptionError):
    """Units of a queue are missing between what is stored and what follows."""


class UnsupportedFormatError(StoreError):
    """Well-formed, but of a kind or version that this project does not handle."""


class ConsumeQueueError(StoreError):
    """A consume-queue backend failed."""


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(exc: OSError) -> bool:
    """Return whether the system says that no space is left."""
    return exc.errno in _DISK_FULL


@contextmanager
def os_errors(action: str, path: str | Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StoreIOError`` that names ``path``.

    Where it is entered for every queue a string is cheaper.

    Raises:
        DiskFullError: the disk, or a quota, has no room.
        StoreIOError: the system refused something else.
    """
    try:
        yield
    except OSError as exc:
        kind = DiskFullError if is_full(exc) else StoreIOError
        raise kind(f"cannot {action}: {exc.strerror or exc}", path=Path(path)) from exc


def vanished_file(exc: BaseException | None) -> str | None:
    """Return the file whose absence ``exc`` reports, if nothing has that name now.

    A folder is listed first and each file is opened later: a file that another process removed in
    between is not damage, and a new listing does not have it. ``None``: ``exc`` is something else,
    as with a dangling link.
    """
    while exc is not None:
        if isinstance(exc, FileNotFoundError) and isinstance(exc.filename, str | Path):
            name = str(exc.filename)
            return None if os.path.lexists(name) else name
        exc = exc.__cause__
    return None


@contextmanager
def retryable() -> Iterator[None]:
    """Make a ``DiskFullError`` retryable: nothing has changed unless the block ends."""
    try:
        yield
    except DiskFullError as exc:
        raise RetryableDiskFullError(exc.reason, path=exc.path) from exc
