"""ReputService: a thread that dispatches full batches concurrently, if they take long.

A writer that fills a batch dispatches it itself, or wakes this thread and continues. ``BatchCost``
decides, from the time that the last full batches took (decision 62).

Source: RocketMQ ``DefaultMessageStore.ReputMessageService``, which always runs.
"""

import atexit
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import STALLING
from cqstore.store.service.runtime.environment import usable_cores
from cqstore.store.service.runtime.watched_thread import EXIT_SECONDS, Worker

_LOG = StoreLogger(__name__)
SWITCH = "CQSTORE_REPUT_THREAD"
"""``always``: from the opening on, for each full batch; ``never``. Unset: ``BatchCost`` decides."""
if os.environ.get(SWITCH, "") not in {"", "always", "never"}:
    raise ImportError(
        f"{SWITCH}: invalid value {os.environ[SWITCH]!r}: expected 'always', 'never', or unset"
    )
MODE: Final = os.environ.get(SWITCH, "")
HIGH_SECONDS = 0.0025
"""Two full batches in a row above it start the use of the thread: they take a tenth or more of the
time of the puts that fill them."""
LOW_SECONDS = 0.0015
"""Two batches in a row below it stop the use of the thread."""
_IN_A_ROW = 2


class BatchCost:
    """The CPU time of full batches in the thread that dispatches them.

    Not wall time: with a concurrent writer most of that is waiting for the GIL. One caller at a
    time, under the lock of the dispatch; any thread may read ``is_high``.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.clock = clock
        """CPU time of the calling thread, in seconds."""
        self.is_high = False
        self._against = 0  # consecutive batches that contradict ``is_high``

    def add(self, seconds: float, units: int, batch_limit: int) -> None:
        """Record the time of a batch, scaled to one of ``batch_limit`` units."""
        taken = seconds / units * batch_limit
        disagrees = taken < LOW_SECONDS if self.is_high else taken >= HIGH_SECONDS
        self._against = self._against + 1 if disagrees else 0
        if self._against >= _IN_A_ROW:
            self.is_high, self._against = not self.is_high, 0


class ReputService:
    """Runs ``drain`` of the dispatcher in its own thread when it is woken.

    The flush thread starts it when it is first needed, so that neither an opening nor a put does.
    """

    def __init__(
        self,
        drain: Callable[[], object],
        failed: Callable[[BaseException], object],
        cores: Callable[[], int] = usable_cores,
        mode: str = MODE,
    ) -> None:
        """``failed`` is called with the exception that ended the thread."""
        self._drain = drain
        self._failed = failed
        self._cores = cores
        self._mode = mode
        self.cost = BatchCost()
        self.batches = 0
        """Number of batches dispatched by the thread."""
        self.worker: Worker | None = None
        """``None``: the thread was never needed."""
        self._wake = Wakeup()
        self._is_up = False
        self._stopped = False
        self._pid = os.getpid()

    @property
    def is_active(self) -> bool:
        """Return whether full batches are currently left to the thread."""
        return self._is_up and (self.cost.is_high or self._mode == "always")

    def wake(self) -> None:
        """Make the thread dispatch the waiting units. Any thread; never waits."""
        self._wake.set()

    def start_if_wanted(self) -> None:
        """Start the thread once, if batches take long and a core is available for it."""
        if self.worker is not None or self._stopped or self._mode == "never":
            return
        if self._mode != "always" and not (self.cost.is_high and self._cores() > 1):
            return
        self.worker = Worker("cqstore-reput", self._run, self._failed)
        try:
            self.worker.start()
        except (RuntimeError, MemoryError) as exc:  # no more threads: writers dispatch themselves
            self.worker, self._mode = None, "never"
            _LOG.warning("cannot start the dispatch thread, so puts dispatch themselves: %s", exc)
            return
        atexit.register(self._leave)

    def stop(self) -> None:
        """End the thread after its current batch; the caller dispatches the rest."""
        self._stopped = True
        self._wake.set()
        if self.worker is not None:
            self.worker.end()
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        """End the thread before the interpreter ends: otherwise it would keep its locks."""
        if self._pid == os.getpid() and self.worker is not None:
            self._stopped = True
            self._wake.set()
            self.worker.end(EXIT_SECONDS)

    def _run(self) -> None:
        """Dispatch a batch each time the thread is woken, until it is stopped."""
        self._is_up = True
        try:
            while True:
                self._wake.wait()
                if self._stopped:
                    return
                with suppress(*STALLING):  # stalled: a later call continues
                    self._drain()
                self.batches += 1
        finally:
            self._is_up = False
