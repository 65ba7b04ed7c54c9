"""Moments: whether changes in between can explain two different answers."""

from typing import NamedTuple

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.changes import Changes


class Moment(NamedTuple):
    """State that an answer depends on; between two equal, still moments nothing changed."""

    writes: int | None
    """Number of writes to the queues so far; ``None`` if one was in progress."""
    low: int
    """Min phy offset of the log: records below it have expired."""
    losses: int
    """Increases when queues begin to lose units at their ends, and when they have lost them."""

    @property
    def is_still(self) -> bool:
        """Return whether no write was in progress, so all backends had the same units."""
        return self.writes is not None


class Moments:
    """Returns the ``Moment`` that it is now. Any thread; no thread waits for it."""

    def __init__(self, changes: Changes, log: CommitLog) -> None:
        self._changes = changes
        self._log = log

    def now(self) -> Moment:
        """Return the moment that it is now."""
        return Moment(self._changes.moment, self._log.min_phy_offset(), self._changes.losses)
