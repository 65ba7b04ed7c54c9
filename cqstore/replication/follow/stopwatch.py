"""Stopwatch: for how long the same thing has been so, of what is seen now and then."""


class Stopwatch:
    """For how long one thing has been so; another thing starts over."""

    def __init__(self) -> None:
        """Begin; nothing was seen yet."""
        self._what: int | None = None
        self._since = 0.0

    def seconds(self, what: int, now: float) -> float:
        """Say what is the case ``now``; return the seconds since it was first seen to be."""
        if what != self._what:
            self._what, self._since = what, now
        return now - self._since
