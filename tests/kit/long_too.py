"""Parameters of a test that only its long runs have."""

from collections.abc import Iterable
from typing import Any

import pytest


def long_too(values: Iterable[Any]) -> list[Any]:
    """Return the values, tuples of several parameters among them, marked as ``long``."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.long)
        for each in values
    ]
