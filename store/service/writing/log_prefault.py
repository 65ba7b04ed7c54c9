"""LogPrefault: loads the log's next pages into memory before a put writes to them.

The first put that writes to a page waits for the kernel, which finds, zeroes and maps it, with as
many pages after it as the disk's read-ahead specifies. Here a thread does that in advance, without
the GIL. It changes no byte, and nothing depends on it: if it ends or is late, puts load their pages
themselves. Decision 47 has the figures.
"""

import time
from collections.abc import Callable

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import StoreError
from cqstore.store.log import _pages
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)
MIN_AHEAD = 256 << 10
"""Minimum in bytes; a log that grows more slowly in ``SECONDS_AHEAD`` needs no prefault."""
MAX_AHEAD = 8 << 20
SECONDS_AHEAD = 0.1
"""The distance is the growth of the log in this time. The next sync writes the loaded pages as
zeros, and another one writes their records: at most a fifth of a sync every half a second."""

BringIn = Callable[[object, int, int], bool]
"""Takes a map and a range of it, see ``store.log._pages``; returns whether it is supported."""


class LogPrefault:
    """Loads the pages after the log's end into memory, in its own thread."""

    def __init__(
        self, log: CommitLog, bring_in: BringIn, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._bring_in = bring_in
        self._clock = clock
        self._due = 0  # the end of the log from which on the thread has work
        self._wake = Wakeup()
        self._stopped = False
        self._seen, self._seen_at = log.end, clock()
        self.brought = log.end
        """Phy offset up to which pages are in memory."""
        self.worker = Worker(
            "cqstore-pages", self._run, lambda _: None, "puts load the log's pages themselves"
        )

    @staticmethod
    def of(log: CommitLog, config: StoreConfig) -> "LogPrefault | None":
        """Return a prefault if records are written through maps, and not synced at once.

        Each sync would also write the pages ahead, as zeros (decision 71).
        """
        if config.is_transient or config.syncs_each_put:
            return None
        return LogPrefault(log, _pages.bring_in)

    def start(self) -> None:
        """Start the thread."""
        self.worker.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wake.set()
        self.worker.end()

    def wake_if_due(self) -> None:
        """Wake the thread if the log has grown to where it is due. Any thread; never waits.

        It is due again some bytes later, until the thread sets the offset: if a caller is
        interrupted before it wakes the thread, a later put wakes it.
        """
        end = self._log.end
        if end >= self._due:
            self._due = end + MIN_AHEAD
            self._wake.set()

    def _run(self) -> None:
        """Do a step each time the thread is woken, while the kernel supports it."""
        while True:
            self._wake.wait()
            if self._stopped:
                return
            if not self.step():
                _LOG.info("the kernel does not support loading the log's pages ahead")
                return

    def step(self) -> bool:
        """Load the pages that the log needs next; return whether the kernel supports it."""
        end, now = self._log.end, self._clock()
        lead = bytes_ahead(end - self._seen, now - self._seen_at)
        self._seen, self._seen_at = end, now
        file = self._log.prepared  # its blocks are reserved
        if not lead or file is None:
            self._due = end + MIN_AHEAD
            return True
        first, last = file.file_from_offset, file.file_from_offset + file.file_size
        start, stop = max(self.brought, end, first), min(end + lead, last)
        self._due = last if stop == last else stop - lead // 2
        try:
            done = start >= stop or self._bring_in(file.map(), start - first, stop - first)
        except StoreError:  # the file is gone; there may be another one when the log has grown
            return True
        self.brought = max(start, stop)
        return done


def bytes_ahead(grown: int, seconds: float) -> int:
    """Return how far ahead to load for a log that grew by ``grown`` bytes in ``seconds``."""
    if seconds <= 0:
        return 0
    lead = min(round(grown * SECONDS_AHEAD / seconds), MAX_AHEAD)
    return lead if lead >= MIN_AHEAD else 0
