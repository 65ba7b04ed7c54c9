"""Trace: records the operations of an open store in a file, without bodies.

A caller queues a tuple in about 1 µs; a thread writes it as a line in about 2 µs. No call waits for
the disk: operations that arrive faster than they can be written are dropped and counted. A failure
stops the trace, which reports it, and never affects the store.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from cqstore.ab.trace.operation_lines import StoreOp, first_line, operation_line
from cqstore.ab.trace.trace_output import TraceOutput
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
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
    """Recording of a store's operations in a file. Any thread may call any method."""

    def __init__(self, path: Path, max_bytes: int, stopped: Callable[["Trace"], object]) -> None:
        """Create the file ``path``; ``stopped`` is called when the trace stops recording.

        Raises:
            StoreConfigError: the file already exists, or ``max_bytes`` is too small.
            StoreIOError: the file cannot be created.
        """
        self.path = path
        self._output = TraceOutput(path, max_bytes, first_line(int(time.time() * 1000)))
        self.full = False
        """Whether the trace reached ``max_bytes`` and stopped itself."""
        self.failure: BaseException | None = None
        """The error that ended the trace, if any."""
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
        """Record one operation that begins now, or began at ``at`` of ``time.perf_counter``."""
        self._waiting.put((op, at or _now(), values))

    def stop(self) -> None:
        """Write the waiting operations and close the file durably. A second call does nothing.

        If the first call was interrupted, the second call continues it.
        """
        self._stop.set()
        self._stopped(self)
        self.worker.end()
        with self._closing:
            try:
                self._output.close()
            except OSError as exc:
                self.failure = self.failure or exc
        if self.dropped:
            _LOG.warning(
                "trace %s: %d operations are missing, because its queue was full",
                self.path, self.dropped,
            )  # fmt: skip

    @property
    def is_ending(self) -> bool:
        """Return whether ``stop`` was called."""
        return self._stop.is_set()

    @property
    def operations(self) -> int:
        """Return the number of operations written, one line each after the first line."""
        return self._output.operations

    @property
    def total_bytes(self) -> int:
        """Return the size of the file."""
        return self._output.total_bytes

    @property
    def dropped(self) -> int:
        """Return the number of operations dropped because they arrived too fast."""
        return self._waiting.dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the thread

    def _run(self) -> None:
        over = False
        while not over:
            over = self._stop.wait(_LOOK_SECONDS)  # what came before is written all the same
            if not self._write():
                return

    def _write(self) -> bool:
        """Write the waiting operations; return False if the file is full."""
        lines: list[bytes] = []
        waiting = self._waiting
        for _ in range(len(waiting)):
            if (noted := waiting.poll()) is None:
                break
            op, at, values = noted
            lines.append(operation_line(op, values, at - self._began))
        if self._output.write(lines) < len(lines):
            self._stopped(self)
            self.full = True
        return not self.full

    def _give_up(self, exc: BaseException) -> None:
        self.failure = exc
        self._stopped(self)
