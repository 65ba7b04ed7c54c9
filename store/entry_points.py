"""Entry points: what the installed packages offer to ours, read from their files once."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

_MAX_GROUPS = 32
"""Groups that are kept; each opening of a store asks for four of them."""


def entries(group: str) -> Sequence[EntryPoint]:
    """Return what is offered in ``group``, sorted by name."""
    return _offered(group, tuple(sys.path))


@lru_cache(_MAX_GROUPS)
def _offered(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Select it from what all packages offer, a hundred and more."""
    return tuple(sorted(_all(path).select(group=group), key=lambda entry: entry.name))


@lru_cache(1)
def _all(_path: tuple[str, ...]) -> Any:
    """Return all entry points; looked up anew only when ``sys.path`` has changed."""
    return entry_points()
