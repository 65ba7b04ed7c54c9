"""Entry points: what the installed packages offer to ours, read from their files once."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def entries(group: str) -> Sequence[EntryPoint]:
    """Return what is offered in ``group``, sorted by name."""
    return sorted(_all(tuple(sys.path)).select(group=group), key=lambda entry: entry.name)


@lru_cache(1)
def _all(_path: tuple[str, ...]) -> Any:
    """Return all entry points; looked up anew only when ``sys.path`` has changed."""
    return entry_points()
