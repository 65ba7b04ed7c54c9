"""TopicHold: topics whose queues get no offsets for a while, and a gate for waiting puts.

While topics are deleted, puts to them are refused: the offsets of a new incarnation begin once its
old queues are deleted durably. Puts to all other topics continue.
"""

import threading


class TopicHold:
    """A gate for some topics. Any thread may wait; the holder ends it, once."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._over = threading.Lock()  # no Event: an interrupted caller could leave its lock held
        self._over.acquire()

    def end(self) -> None:
        """Release all threads that wait at the gate."""
        if self._over.locked():
            self._over.release()

    def wait(self, seconds: float) -> None:
        """Wait for the end, at most ``seconds``: the thread that ends it may be interrupted.

        Each released thread opens the gate for the next; if one is interrupted there, the others
        wait until their own deadline.
        """
        if self._over.acquire(timeout=seconds):
            self._over.release()


class TopicHeldError(Exception):
    """An offset of a held topic was requested: wait for ``hold``, then try again.

    Raised before any change, for the appender; not an error of the store.
    """

    def __init__(self, hold: TopicHold) -> None:
        super().__init__()
        self.hold = hold
