"""ReputService: a thread that dispatches full batches beside the writer, where they take long.

The writer that finds a batch full dispatches it itself, or wakes this thread and goes on. Which of
the two, ``BatchCost`` decides by what the last full batches took (decision 62).

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
"""``always``: from the opening on, for each full batch; ``never``. Not set: ``BatchCost`` says."""
if os.environ.get(SWITCH, "") not in {"", "always", "never"}:
    raise ImportError(
        f"{SWITCH}: invalid value {os.environ[SWITCH]!r}: expected 'always', 'never', or unset"
    )
MODE: Final = os.environ.get(SWITCH, "")
HIGH_SECONDS = 0.0025
"""Two full batches in a row that take so long make the thread worth it: a tenth or more of the time
of the puts that fill them."""
LOW_SECONDS = 0.0015
"""Two that take less make it not worth it."""
_IN_A_ROW = 2


class BatchCost:
    """What full batches take, in processor time of the thread that dispatches them.

    Not by the clock: beside a writer most of that is waiting for the interpreter's lock. One caller
    at a time, under the lock of the dispatch; any thread may read ``is_high``.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.clock = clock
        """Seconds of the calling thread."""
        self.is_high = False
        self._against = 0  # batches in a row that contradict ``is_high``

    def add(self, seconds: float, units: int, batch_limit: int) -> None:
        """Note what a batch took, reduced to one of ``batch_limit`` units."""
        taken = seconds / units * batch_limit
        disagrees = taken < LOW_SECONDS if self.is_high else taken >= HIGH_SECONDS
        self._against = self._against + 1 if disagrees else 0
        if self._against >= _IN_A_ROW:
            self.is_high, self._against = not self.is_high, 0


class ReputService:
    """Runs ``drain`` of the dispatcher in a thread of its own when it is woken.

    The flush thread starts it when it is first wanted, so that neither an opening nor a put does.
    """

    def __init__(
        self,
        drain: Callable[[], object],
        failed: Callable[[BaseException], object],
        cores: Callable[[], int] = usable_cores,
        mode: str = MODE,
    ) -> None:
        """``failed`` is called with what ended the thread."""
        self._drain = drain
        self._failed = failed
        self._cores = cores
        self._mode = mode
        self.cost = BatchCost()
        self.batches = 0
        """Times that it has dispatched what waited."""
        self.worker: Worker | None = None
        """``None``: it was never wanted."""
        self._wake = Wakeup()
        self._is_up = False
        self._stopped = False
        self._pid = os.getpid()

    @property
    def is_active(self) -> bool:
        """Return whether full batches are left to the thread at present."""
        return self._is_up and (self.cost.is_high or self._mode == "always")

    def wake(self) -> None:
        """Have the thread dispatch what waits. Any thread; never waits."""
        self._wake.set()

    def start_if_wanted(self) -> None:
        """Start the thread where batches take long and it would have a core; once."""
        if self.worker is not None or self._stopped or self._mode == "never":
            return
        if self._mode != "always" and not (self.cost.is_high and self._cores() > 1):
            return
        self.worker = Worker("cqstore-reput", self._run, self._failed)
        try:
            self.worker.start()
        except (RuntimeError, MemoryError) as exc:  # no more threads: writers go on by themselves
            self.worker, self._mode = None, "never"
            _LOG.warning("cannot start the dispatch thread, so puts dispatch themselves: %s", exc)
            return
        atexit.register(self._leave)

    def stop(self) -> None:
        """End the thread behind the batch that it is at; what waits then is the caller's."""
        self._stopped = True
        self._wake.set()
        if self.worker is not None:
            self.worker.end()
            atexit.unregister(self._leave)

    def _leave(self) -> None:
        """End the thread before the interpreter does: cut off there it would keep its locks."""
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
                with suppress(*STALLING):  # stalled: a later call goes on with it
                    self._drain()
                self.batches += 1
        finally:
            self._is_up = False
