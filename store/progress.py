"""Progress: callbacks for the progress of a long run."""

from collections.abc import Callable

Progress = Callable[[int], object]
"""Called with phy offsets, in order, from time to time."""

OnEvent = Callable[[str], object]
"""Called with a sentence about an event."""


def noop(*_arguments: object) -> None:
    """Do nothing, with any arguments: the default progress callback."""
