"""Errors of RocksDB as errors of the store; the kind of the status is preserved.

* ConsumeQueueError (``cqstore.store.errors``)
  * RocksDBError
    * RocksDBIOError, which also is a StoreIOError
      * RocksDBFullError, which also is a DiskFullError
    * RocksDBDamagedError, which also is a CorruptionError
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from cqstore.cq_rocksdb.engine._capi import Error
from cqstore.store.errors import ConsumeQueueError, CorruptionError, DiskFullError, StoreIOError

_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
"""The system's texts for the errors of ``cqstore.store.errors.is_full``."""
_OF_A_FILE_OF_RUST = re.compile(r"\(os error \d+\)$")
"""End of the error text for a file that rocksdict itself writes."""


class RocksDBStatus(Enum):
    """Kinds of RocksDB statuses; the value is the beginning of RocksDB's text for the status."""

    CORRUPTION = "Corruption"
    NO_SPACE = "IO error: No space left on device"
    IO_ERROR = "IO error"
    INVALID_ARGUMENT = "Invalid argument"
    NOT_SUPPORTED = "Not implemented"
    NOT_FOUND = "NotFound"
    BUSY = "Resource busy"
    ABORTED = "Operation aborted"
    TIMED_OUT = "Operation timed out"
    SHUTDOWN_IN_PROGRESS = "Shutdown in progress"
    INCOMPLETE = "Result incomplete"
    TRY_AGAIN = "Operation failed. Try again"
    OTHER = ""

    @classmethod
    def of(cls, text: str) -> "RocksDBStatus":
        """Return the kind of a status from its text; ``OTHER``: unknown.

        An open adds its own words before the text of the system.
        """
        if text.startswith(cls.IO_ERROR.value) or _OF_A_FILE_OF_RUST.search(text):
            return cls.NO_SPACE if any(full in text for full in _FULL) else cls.IO_ERROR
        return next(kind for kind in cls if text.startswith(kind.value))


class RocksDBError(ConsumeQueueError):
    """RocksDB refused an operation.

    ``status`` is the reason: after ``IO_ERROR`` and ``NO_SPACE``, reopen the store; after
    ``CORRUPTION``, repair the queues or rebuild them from the log.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: RocksDBStatus = RocksDBStatus.OTHER,
        path: Path | None = None,
        phy_offset: int | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(reason, path=path, phy_offset=phy_offset, position=position)
        self.status = status


class RocksDBIOError(RocksDBError, StoreIOError):
    """An operation of RocksDB failed in the operating system."""


class RocksDBFullError(RocksDBIOError, DiskFullError):
    """No space is left for one of RocksDB's files."""


class RocksDBDamagedError(RocksDBError, CorruptionError):
    """RocksDB cannot open the database or read a block because its files are damaged."""


_PRIVATE = re.compile(r"/\S*/cqstore-read-only-[^/\s]+")
"""Private folder of a read-only open in RocksDB's texts, which users do not know."""
_BLOCK = re.compile(r"\s+in (\S.*\.\w+) offset (\d+)( size \d+)?$")
"""End of the text for an unreadable block: its file and the position in the file."""
_KINDS = {
    RocksDBStatus.IO_ERROR: RocksDBIOError, RocksDBStatus.NO_SPACE: RocksDBFullError,
    RocksDBStatus.CORRUPTION: RocksDBDamagedError,
}  # fmt: skip
REBUILD = "cqstore rebuild creates new queues from the commit log and keeps the old files"
"""Remedies for a damaged database."""
_ZLIB = "Corrupted compressed block contents: Zlib"
_NOT_OF_ROCKSDICT = (
    "the rocksdict engine cannot read zlib, the native one can; if it cannot either, "
)


@contextmanager
def table_errors(folder: Path) -> Iterator[None]:
    """Translate errors of RocksDB for a table file in ``folder`` into errors of this project.

    The native engine raises its own ``Error``, rocksdict a bare ``Exception``.

    Raises:
        RocksDBError: RocksDB reports an error.
    """
    try:
        yield
    except Exception as exc:
        if type(exc) is Exception or isinstance(exc, Error):
            raise rocksdb_error(str(exc), folder) from exc
        raise


def is_rocksdicts(exc: BaseException) -> bool:
    """Return whether rocksdict raised ``exc``: a bare exception, or an ``OSError`` without errno.

    The latter is for a file that rocksdict writes itself, in Rust.
    """
    return type(exc) is Exception or (isinstance(exc, OSError) and exc.errno is None)


def is_of_the_disk(text: str) -> bool:
    """Return whether a text reports a full disk, or a file that rocksdict writes itself.

    Such a file is in the opened folder; for a read-only open, among temporary files.
    """
    full = RocksDBStatus.of(text) is RocksDBStatus.NO_SPACE
    return full or _OF_A_FILE_OF_RUST.search(text) is not None


def disk_error(sentence: str, folder: Path) -> StoreIOError:
    """Return the error for a failed disk operation of rocksdict, by its text in ``sentence``."""
    kind = DiskFullError if any(full in sentence for full in _FULL) else StoreIOError
    return kind(sentence, path=folder)


def rocksdb_error(text: str, folder: Path) -> RocksDBError:
    """Return the error for the text of a RocksDB status."""
    text = _PRIVATE.sub(lambda _: str(folder), text)
    status = RocksDBStatus.of(text)
    kind: type[RocksDBError] = _KINDS.get(status, RocksDBError)
    path, position = folder, None
    if status is RocksDBStatus.CORRUPTION:
        if (block := _BLOCK.search(text)) is not None:
            path, position, text = Path(block[1]), int(block[2]), text[: block.start()]
        text = f"{text}; {_NOT_OF_ROCKSDICT if _ZLIB in text else ''}{REBUILD}"
    return kind(f"RocksDB: {text}", status=status, path=path, position=position)
