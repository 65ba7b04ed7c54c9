"""The order in which sides take turns."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def mirrored_orders(sides: Sequence[T], draw: np.random.Generator) -> Iterator[list[T]]:
    """Yield orders of ``sides`` without end: a random one, then its reverse (ABBA), and so on."""
    while True:
        order = [sides[at] for at in draw.permutation(len(sides))]
        yield order
        yield order[::-1]
