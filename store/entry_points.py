"""Entry points: extensions that the installed packages offer, read from their files once."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

_MAX_GROUPS = 32
"""Groups that are cached; each opening of a store reads four."""


def entries(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of ``group``, sorted by name."""
    return _offered(group, tuple(sys.path))


@lru_cache(_MAX_GROUPS)
def _offered(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Select the group from the entry points of all packages, a hundred or more."""
    return tuple(sorted(_all(path).select(group=group), key=lambda entry: entry.name))


@lru_cache(1)
def _all(_path: tuple[str, ...]) -> Any:
    """Return all entry points; read again only when ``sys.path`` has changed."""
    return entry_points()
