"""Progress: whom a long run tells how far it has come."""

from collections.abc import Callable

Progress = Callable[[int], object]
"""Told phy offsets, in order, now and then."""

Tell = Callable[[str], object]
"""Told a sentence when something comes, goes, or begins."""


def noop(*_told: object) -> None:
    """Do nothing, with any arguments: the default progress callback."""
