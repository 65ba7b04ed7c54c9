"""Moments: whether time can explain that two answers are not the same."""

from typing import NamedTuple

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.changes import Changes


class Moment(NamedTuple):
    """What an answer depends on; nothing has changed between two that are equal and still."""

    writes: int | None
    """Number of the writes to the queues until then; ``None``: one was under way."""
    low: int
    """The log's minimum: what lies below has expired."""
    losses: int
    """Rises when queues begin to lose units at their ends, and when they have lost them."""

    @property
    def is_still(self) -> bool:
        """Return whether all backends had what any of them had."""
        return self.writes is not None


class Moments:
    """Returns the ``Moment`` that it is now. Any thread; no thread waits for it."""

    def __init__(self, changes: Changes, log: CommitLog) -> None:
        self._changes = changes
        self._log = log

    def now(self) -> Moment:
        """Return the moment that it is now."""
        return Moment(self._changes.moment, self._log.min_phy_offset(), self._changes.losses)
