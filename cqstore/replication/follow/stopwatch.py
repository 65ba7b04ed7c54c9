"""Stopwatch: measures how long a value has been unchanged, from occasional observations."""


class Stopwatch:
    """Time for which a value has been unchanged; a new value starts over."""

    def __init__(self) -> None:
        """Begin without an observation."""
        self._what: int | None = None
        self._since = 0.0

    def seconds(self, what: int, now: float) -> float:
        """Record that the value is ``what`` at ``now``; return the seconds since it first was."""
        if what != self._what:
            self._what, self._since = what, now
        return now - self._since
