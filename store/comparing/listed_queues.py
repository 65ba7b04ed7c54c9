"""Lists the queues to compare: all of both sides, or those that may have changed since."""

from collections.abc import Callable, Iterator

import numpy as np

from cqstore.store.comparing.verified_queues import QueueFacts, VerifiedQueues
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.bulk import UNIT_ROWS, HasEnds, HasWholeQueues, UnitSource, merge_queues
from cqstore.store.queue.units import QueueKey

SOURCE, TARGET = 1, 2
BOTH = SOURCE | TARGET
Range = tuple[QueueKey | None, QueueKey | None]
"""Queues after the first, up to and including the second, in key order."""
Sided = tuple[QueueKey, int]
"""A queue, and the sides that list it: 1 source, 2 target, 3 both; 0: derived from their ends."""
Wanted = Callable[[Iterator[QueueKey]], Iterator[QueueKey]]
"""Leaves out the queues that are not to be compared."""
_UNKNOWN = -1


def union(
    source: UnitSource, target: UnitSource, between: Range, wanted: Wanted = iter
) -> Iterator[Sided]:
    """Yield each queue of either side that is ``wanted``, in key order."""
    return _sided(wanted(source.queues(*between)), wanted(target.queues(*between)))


def _sided(source: Iterator[QueueKey], target: Iterator[QueueKey]) -> Iterator[Sided]:
    for queue, of_source, of_target in merge_queues(source, target):
        yield queue, SOURCE * of_source | TARGET * of_target


class TouchedQueues:
    """Skips the queues that need no second comparison. One thread.

    Their files are unchanged, and the target has got no unit since. Of these queues only the ends
    are read, if the target has them. Its units without an end are not searched: the first
    comparison has found none, and units are put with their ends.
    """

    def __init__(
        self, source: UnitSource, target: UnitSource, facts: QueueFacts, known: VerifiedQueues
    ) -> None:
        """``known``: the digests of the first comparison; since then units were only put."""
        self._source, self._target = source, target
        self._last_phy = _UNKNOWN  # of the target's queue that was listed last
        self._facts, self._known = facts, known
        self.passed_over = 0
        """Number of queues that were skipped."""

    def between(self, between: Range, wanted: Wanted) -> Iterator[Sided]:
        """Yield all other queues of either side that are ``wanted``, in key order.

        Raises:
            StoreIOError, CorruptionError: a side cannot be listed.
        """
        source, facts, known = self._source, self._facts, self._known
        listed: Callable[[QueueKey], bytes | None] = lambda _: None  # noqa: E731
        if isinstance(source, HasWholeQueues):
            listed = source.facts_of
        both = wanted(source.queues(*between)), wanted(self._of_target(between))
        for queue, sides in _sided(*both):
            is_old = sides == BOTH and 0 <= self._last_phy < known.complete_to
            if is_old and facts.digest(queue, listed(queue)) in known:
                self.passed_over += 1
            else:
                yield queue, sides

    def _of_target(self, between: Range) -> Iterator[QueueKey]:
        """Yield the queues of the target."""
        if isinstance(self._target, HasEnds):
            for queue, _, last_phy in self._target.written_ends(*between):
                self._last_phy = last_phy
                yield queue
            return
        for queue in self._target.queues(*between):
            self._last_phy = self._read_last_phy(queue)
            yield queue

    def _read_last_phy(self, queue: QueueKey) -> int:
        """Return the phy offset of the target's last unit of a queue, negative without one."""
        last = np.empty(1, UNIT_ROWS)
        try:
            end = self._target.next_offset(queue)
            found = end > 0 and self._target.fill(queue, end - 1, last) == 1
        except CorruptionError:
            return _UNKNOWN  # the comparison reports it
        return int(last["phy_offset"][0]) if found else _UNKNOWN
