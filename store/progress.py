"""Progress: callbacks for how far a long run has come."""

from collections.abc import Callable

Progress = Callable[[int], object]
"""Called with phy offsets, in order, now and then."""

OnEvent = Callable[[str], object]
"""Called with a sentence when something comes, goes, or begins."""


def noop(*_arguments: object) -> None:
    """Do nothing, with any arguments: the default progress callback."""
