"""TopicHold: topics whose queues give no offsets for a while, and a gate for who wants one.

While topics are deleted nobody may put to them: the offsets of their new life begin when their old
queues are gone for good. Puts to all other topics go on.
"""

import threading


class TopicHold:
    """A gate before some topics. Any thread may wait; who holds them ends it, once."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._over = threading.Lock()  # no Event: an interrupted caller could leave its lock taken
        self._over.acquire()

    def end(self) -> None:
        """Let go on all who wait."""
        if self._over.locked():
            self._over.release()

    def wait(self, seconds: float) -> None:
        """Wait for the end, at most so long: the thread that ends it may have been interrupted.

        Each that goes on opens the gate for the next; the one that was interrupted there leaves
        the others to their own deadline.
        """
        if self._over.acquire(timeout=seconds):
            self._over.release()


class TopicHeldError(Exception):
    """An offset was asked for whose topic is held: wait for ``hold``, then ask again.

    Raised before anything has happened, for the one who appends; no error of the store.
    """

    def __init__(self, hold: TopicHold) -> None:
        super().__init__()
        self.hold = hold
