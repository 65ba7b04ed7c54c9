"""TopicHold: topics whose queues give no offsets for a while, and a gate for who wants one.

While topics are deleted nobody may put to them: the offsets of their new life begin when their old
queues are gone for good. Puts to all other topics go on.
"""

import threading


class TopicHold:
    """A gate before some topics. Any thread may wait; who holds them ends it, once."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._over = threading.Event()

    def end(self) -> None:
        """Let go on all who wait."""
        self._over.set()

    def wait(self, seconds: float) -> None:
        """Wait for the end, at most so long: whoever was to tell of it may have been cut short."""
        self._over.wait(seconds)


class TopicHeldError(Exception):
    """An offset was asked for whose topic is held: wait for ``hold``, then ask again.

    Raised before anything has happened, for the one who appends; no error of the store.
    """

    def __init__(self, hold: TopicHold) -> None:
        super().__init__()
        self.hold = hold
