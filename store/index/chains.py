"""Linking of consecutive new entries into the chains of their slots, with numpy."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ChainLinks(NamedTuple):
    """The links of consecutive entries, as far as these entries determine them.

    Slot ``slots[k]`` has entries among them: the first is row ``opening[k]``, the last has the
    number ``newest[k]``.
    """

    previous: NDArray[np.int64]
    """Per entry, the number of the previous one in its chain; 0 in the ``opening`` rows, whose
    predecessors the caller adds."""
    slots: NDArray[np.int64]
    """Distinct, ascending."""
    opening: NDArray[np.int64]
    newest: NDArray[np.int64]


def link_chains(slots: NDArray[np.int64], first_index: int) -> ChainLinks:
    """Link entries ``first_index``, ``first_index + 1``, … with the slots ``slots`` (not empty)."""
    order = np.argsort(slots, kind="stable")
    arranged = slots[order]
    starts = np.flatnonzero(np.diff(arranged, prepend=-1))
    links = np.empty(len(slots), np.int64)
    links[1:] = order[:-1] + first_index
    links[starts] = 0
    previous = np.empty(len(slots), np.int64)
    previous[order] = links
    ends = np.append(starts[1:], len(slots)) - 1
    return ChainLinks(previous, arranged[starts], order[starts], order[ends] + first_index)
