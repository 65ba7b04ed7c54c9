"""SharedWriter: a database that several threads and tables write to, opened by the first write.

Other code may replace the files of the database while it is released.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from cqstore.cq_rocksdb.engine.raw_writer import RawWriter, Row
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import StoreClosedError, StoreError, StoreStateError
from cqstore.store.paths import StorePaths


class SharedWriter:
    """A database in a store's folder ``config``, opened by the first write. Any thread."""

    def __init__(self, paths: StorePaths, name: str, families: Collection[str] = ()) -> None:
        """Set the database ``name`` in ``config``; accesses no file."""
        self._paths, self._folder, self._families = paths, paths.config / name, families
        self._lock = CheckedLock("a write to the broker's tables")  # guards _writer
        self._writer: RawWriter | None = None
        self._pid = os.getpid()
        self._closed = False

    def write(self, rows: Callable[[RawWriter], Iterable[Row]]) -> None:
        """Write the rows that ``rows`` returns, durably and all or nothing.

        Raises:
            StoreClosedError: the log is closed.
            StoreStateError: this process is a child of the process that opened the log.
            StoreError: as for ``RawWriter``. The next call opens the database again.
        """
        if self._pid != os.getpid():  # before the lock, which another thread may have held
            raise StoreStateError(
                "the broker's database was opened before a fork: open the log again",
                path=self._folder,
            )
        with self._lock.entry():
            if self._closed:
                raise StoreClosedError("the log is closed", path=self._folder)
            try:
                if self._writer is None:
                    self._writer = RawWriter(self._paths, self._folder, self._families)
                self._writer.write(rows(self._writer))
            except StoreError:
                self._release()
                raise
            finally:
                self._release_if_closed()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Close the database's files, so that others can replace them; writes wait for the end."""
        with self._lock.entry():
            self._release()
            yield

    def close(self) -> None:
        """Close the database; later writes are refused. May be called again."""
        self._closed = True
        if self._pid == os.getpid() and not self._lock.is_mine():
            with self._lock.entry():
                self._release()

    def _release_if_closed(self) -> None:
        """Complete a close that a signal handler called within a write."""
        if self._closed:
            self._release()

    def _release(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
