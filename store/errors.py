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
    """Base class of every error that this project raises.

    ``reason`` is the message without the location. The location is ``path`` with ``phy_offset``
    (bytes from the start of the commit log) or ``position`` (bytes from the start of ``path``).
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
        return text.encode("utf-8", "backslashreplace").decode()  # names may not be valid text


class StoreConfigError(StoreError):
    """Invalid setting; the message names the setting."""


class StoreStateError(StoreError):
    """The state of the store does not allow this call."""


class StoreClosedError(StoreStateError):
    """The store has been closed."""


class StoreLockedError(StoreStateError):
    """The store is already open, in this process or in another one."""


class StoreFailedError(StoreStateError):
    """An earlier write or flush failed; the store must be closed and opened again."""


class NestedCallError(StoreStateError):
    """A call inside another call of the same thread, which would deadlock.

    It came from a signal handler, a finalizer or a callback of the garbage collector. Nothing was
    done; the outer call continues if the error is caught there.
    """


class ReadOnlyStoreError(StoreStateError):
    """A write to a store that was opened read-only."""


class RefusedStoreError(StoreError):
    """The store or folder cannot be used this way; nothing was changed."""


class IllegalMessageError(StoreError):
    """Invalid message or name: it cannot be stored."""


class PropertiesTooLongError(IllegalMessageError):
    """The encoded properties are longer than their two-byte length field allows."""


class NoSuchQueueError(StoreError):
    """The topic or queue does not exist in the store."""


class NoSuchMessageError(StoreError):
    """The message does not exist in the store."""


class StoreIOError(StoreError):
    """An operation of the operating system failed."""


class DiskFullError(StoreIOError):
    """The disk or a quota is full."""


class RetryableDiskFullError(DiskFullError):
    """The disk is full, but nothing is lost: the call can be repeated once there is free space.

    Bytes after the end of a file may have been written; the repeated call writes them again.
    """


class PutHookError(StoreError):
    """A put hook failed, or returned an invalid result; nothing was put."""


class DispatcherError(StoreError):
    """A dispatcher failed; the dispatch is stalled and calls it again with the same record."""


STALLING = (RetryableDiskFullError, DispatcherError)
"""Errors that stall the dispatch: a later dispatch continues at the same record."""


class CorruptionError(StoreError):
    """Stored bytes are invalid."""

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
        named = {"expected": self.expected, "found": self.got}
        facts = ", ".join(f"{name} {fact}" for name, fact in named.items() if fact is not None)
        return f"{text}: {facts}" if facts else text


class MagicCodeError(CorruptionError):
    """A record does not start with a known magic code."""


class ChecksumError(CorruptionError):
    """A checksum does not match its bytes."""


class TruncatedRecordError(CorruptionError):
    """A record or file is shorter than its stored length."""


class QueueGapError(CorruptionError):
    """Units of a queue are missing before the next unit."""


def queue_gap(
    queue: tuple[str, int], phy_offset: int, *, expected: int, got: int, path: Path | None = None
) -> QueueGapError:
    """Return the error for a record whose queue offset is not its queue's next one."""
    topic, queue_id = queue
    return QueueGapError(
        f"queue {queue_id} of topic {topic!r}: units are missing before the next record",
        path=path,
        phy_offset=phy_offset,
        expected=f"queue offset {expected}",
        got=f"queue offset {got}",
    )


class UnsupportedFormatError(StoreError):
    """A valid format whose kind or version is not supported."""


class ConsumeQueueError(StoreError):
    """A consume-queue backend failed."""


_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_full(exc: OSError) -> bool:
    """Return whether ``exc`` means that the disk or a quota is full."""
    return exc.errno in _DISK_FULL


@contextmanager
def os_errors(action: str, path: str | Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StoreIOError`` that names ``path``.

    If it is entered for every queue, a string is cheaper than a path.

    Raises:
        DiskFullError: the disk or a quota is full.
        StoreIOError: any other error of the system.
    """
    try:
        yield
    except OSError as exc:
        kind = DiskFullError if is_full(exc) else StoreIOError
        raise kind(f"cannot {action}: {exc.strerror or exc}", path=Path(path)) from exc


def vanished_file(exc: BaseException | None) -> str | None:
    """Return the file whose absence ``exc`` reports, if nothing has that name now.

    A folder is listed first and each file is opened later: a file that another process removed in
    between is not damage, and a new listing does not have it. ``None``: ``exc`` is another error,
    for example because of a dangling link.
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
