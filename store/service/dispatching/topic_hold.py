"""TopicHold: topics whose queues give no offsets for a while, and a gate for puts that need one.

While topics are deleted puts to them are refused: the offsets of a new incarnation begin once its
old queues are deleted durably. Puts to all other topics continue.
"""

import threading


class TopicHold:
    """A gate before some topics. Any thread may wait; the holder ends it, once."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._over = threading.Lock()  # no Event: an interrupted caller could leave its lock taken
        self._over.acquire()

    def end(self) -> None:
        """Let all go on that wait at the gate."""
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

    Raised before anything has happened, for the appender; no error of the store.
    """

    def __init__(self, hold: TopicHold) -> None:
        super().__init__()
        self.hold = hold
