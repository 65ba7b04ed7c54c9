"""CallGate: what stands around every call into RocksDB.

It counts the call, refuses it after ``close``, and turns what the binding raises into this
project's errors. ``close`` waits for running calls, so a database is never released under a reader.
"""

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from cq_rocksdb.errors import rocksdb_error
from store.errors import StoreClosedError, StoreLockedError, StoreStateError

_forked = threading.Event()
os.register_at_fork(after_in_child=_forked.set)


class CallGate:
    """Brackets every call of one open database. Any number of threads may be inside."""

    def __init__(self, folder: Path, is_rocksdbs: Callable[[BaseException], bool]) -> None:
        """``is_rocksdbs`` knows the errors whose text is a status of RocksDB's."""
        self._folder = folder
        self._is_rocksdbs = is_rocksdbs
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards _running and _closed
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._closed = False

    def __enter__(self) -> None:
        if _forked.is_set() and os.getpid() != self._pid:  # its threads did not come along
            raise StoreStateError("opened before a fork: open the store anew", path=self._folder)
        with self._lock:
            if self._closed:
                raise StoreClosedError("the RocksDB queues have been closed", path=self._folder)
            self._running += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._running -= 1
            if self._closed and not self._running:
                self._idle.notify_all()
        if exc is not None:
            traceback.clear_frames(trace)  # an error that somebody keeps must not keep iterators
            self._raise_translated(exc)

    def close(self) -> bool:
        """Let no further call in and wait for the running ones; False if it was closed before."""
        with self._lock:
            was_closed, self._closed = self._closed, True
            while self._running:
                self._idle.wait()
        return not was_closed

    @contextmanager
    def translation(self) -> Iterator[None]:
        """Translate the errors of the block, without counting it."""
        try:
            yield
        except Exception as exc:
            self._raise_translated(exc)
            raise

    def _raise_translated(self, exc: BaseException) -> None:
        """Raise the error of ours that ``exc`` is; return for what is not RocksDB's to raise."""
        if not self._is_rocksdbs(exc):
            return
        text, folder = str(exc), self._folder
        if "lock hold by" in text or "While lock file" in text:
            raise StoreLockedError(
                f"the RocksDB queues are open elsewhere: {text}", path=folder
            ) from exc
        raise rocksdb_error(text, folder) from exc
