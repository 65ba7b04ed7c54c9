"""Trace: the operations of an open store, written down as they come; no bodies.

A caller leaves a tuple, about a microsecond; a thread makes lines of them, some two more. No call
ever waits for the disk: what comes faster than it can be written is dropped and counted. Nothing
that goes wrong here reaches the store: it ends the trace, which says so.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from cqstore.ab.trace.operation_lines import StoreOp, first_line, operation_line
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import open_regular, write_all
from cqstore.store.service.runtime.bounded_queue import BoundedQueue
from cqstore.store.service.runtime.watched_thread import Worker

_LOG = StoreLogger(__name__)
MAX_TRACE_BYTES = 1 << 30
_MAX_WAITING = 1 << 17
"""Operations, some 200 bytes each."""
_LOOK_SECONDS = 0.05
_now = time.perf_counter
_Noted = tuple[StoreOp, float, tuple[object, ...]]


class Trace:
    """One recording in a file, from its making to ``stop``. Any thread may call any method."""

    def __init__(self, path: Path, max_bytes: int, stopped: Callable[["Trace"], object]) -> None:
        """Make the file ``path``; ``stopped`` is called when nothing is to be noted any more.

        Raises:
            StoreConfigError: the file is there already, or ``max_bytes`` makes no sense.
            StoreIOError: it cannot be made.
        """
        self._first = first_line(int(time.time() * 1000))
        if max_bytes < len(self._first):
            raise StoreConfigError(
                f"max_bytes {max_bytes} is too small for a trace: expected at least"
                f" {len(self._first)}"
            )
        self.path = path
        with os_errors("create the trace", path):
            try:
                self._fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            except FileExistsError as exc:
                raise StoreConfigError(
                    "cannot create the trace: the file already exists", path=path
                ) from exc
        self.operations = 0
        """That were written, a line each behind the first."""
        self.total_bytes = 0
        self.full = False
        """It has reached its limit of bytes, and ended itself."""
        self.failure: BaseException | None = None
        """What ended it before it was stopped."""
        self._max_bytes = max_bytes
        self._stopped = stopped
        self._waiting: BoundedQueue[_Noted] = BoundedQueue(_MAX_WAITING)
        self._began = _now()
        self._stop = Latch()
        self._closing = threading.RLock()  # one thread closes the file
        self.worker = Worker("cqstore-trace", self._run, self._give_up, "the trace is stopped")

    def start(self) -> None:
        """Start the thread that writes."""
        self.worker.start()

    def note(self, op: StoreOp, *values: object, at: float = 0.0) -> None:
        """Note one operation that begins now, or began ``at`` by ``time.perf_counter``."""
        self._waiting.put((op, at or _now(), values))

    def stop(self) -> None:
        """Write what waits and close the file, durably. A second call does nothing.

        But where the first one was interrupted: it continues.
        """
        self._stop.set()
        self._stopped(self)
        self.worker.end()
        with self._closing:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            try:
                os.fsync(fd)
            except OSError as exc:
                self.failure = self.failure or exc
            finally:
                os.close(fd)
        if self.dropped:
            _LOG.warning(
                "trace %s: %d operations are missing, because its queue was full",
                self.path, self.dropped,
            )  # fmt: skip

    @property
    def is_ending(self) -> bool:
        """Return whether it was asked to end."""
        return self._stop.is_set()

    @property
    def dropped(self) -> int:
        """Return how many operations came faster than they could be written."""
        return self._waiting.dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- the thread

    def _run(self) -> None:
        over = False
        while not over:
            over = self._stop.wait(_LOOK_SECONDS)  # what came before is written all the same
            if not self._write():
                return

    def _write(self) -> bool:
        """Write what waits; False: there is no room for more."""
        lines: list[bytes] = []
        first = b"" if self.total_bytes else self._first
        size, waiting = self.total_bytes + len(first), self._waiting
        for _ in range(len(waiting)):
            if (noted := waiting.poll()) is None:
                break
            op, at, values = noted
            line = operation_line(op, values, at - self._began)
            size += len(line)
            if size > self._max_bytes:
                self.full = True
                self._stopped(self)
                break
            lines.append(line)
        data = b"".join([first, *lines])
        with os_errors("write the trace", self.path):
            write_all(self._fd, data, self.total_bytes)
        self.operations += len(lines)
        self.total_bytes += len(data)
        return not self.full

    def _give_up(self, exc: BaseException) -> None:
        self.failure = exc
        self._stopped(self)
