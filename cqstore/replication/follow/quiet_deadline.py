"""QuietDeadline: ends the wait for a master that always has more to send, and explains why.

A broker with open half messages checks them forever, and each check appends to its log. So
``caught_up`` may never become true, although all records except the newest are here.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

from cqstore.replication.follow.follower_progress import FollowerProgress
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.message import HALF_TOPIC, OP_HALF_TOPIC

_GAIN_SECONDS = 1.0
"""Decrease of the records' age on arrival that shows that the follower is catching up."""
_MARKS = 10
"""Number of marks per timeout: phy offsets from which records can be counted."""
_MAX_RECORDS, _MAX_TOPICS = 10_000, 5
_HALF_TOPICS = frozenset({HALF_TOPIC, OP_HALF_TOPIC})


class QuietDeadline:
    """Measures for how long a follower has not come nearer to its master. One thread.

    The distance is the age of records on arrival. Only differences of ages are used, so the clocks
    of both machines need not agree.
    """

    def __init__(
        self, log: CommitLog, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``log`` is the follower's log; ``seconds`` is the timeout."""
        self._log, self._seconds, self._clock = log, seconds, clock
        self._since = clock()
        self._end = log.max_phy_offset()
        self._marks = [(self._since, self._end)] * 2
        self._min_age = math.inf
        self.is_past = False
        """Whether the last call of ``is_over`` returned True."""

    def is_over(self, progress: FollowerProgress) -> bool:
        """Return whether the follower has come no nearer for the whole timeout."""
        now = self._clock()
        if progress.end != self._end:
            self._end = progress.end
            age = now - self._log.followed_timestamp / 1000
            if age < self._min_age - _GAIN_SECONDS:
                self._min_age, self._since = age, now
        if now - self._marks[-1][0] >= self._seconds / _MARKS:
            self._marks = [self._marks[-1], (now, progress.end)]
        self.is_past = now - self._since >= self._seconds
        return self.is_past

    def reason(self, progress: FollowerProgress) -> str:
        """Return a sentence on why the master did not become quiet; reads the last records."""
        waited = f"the master did not become quiet within {self._seconds:g} s"
        topics = self._topics(progress.end)
        if topics:
            count = topics.total()
            shown = ", ".join(f"{topic} ({n})" for topic, n in topics.most_common(_MAX_TOPICS))
            more = f" and {len(topics) - _MAX_TOPICS} more topics" * (len(topics) > _MAX_TOPICS)
            half = (
                " A broker checks open half messages again and again, and each check appends to its"
                " log."
            ) * bool(_HALF_TOPICS & topics.keys())
            return (
                f"{waited}: it is still sending, {count} recent records are in {shown}{more}.{half}"
                f" The log is complete up to {progress.end}. Use --until N to stop at a phy offset"
                " instead"
            )
        if progress.fault:
            return (
                f"{waited}: no records arrived recently, and no connection received two heartbeats."
                f" Last connection error: {progress.fault}"
            )
        return (
            f"{waited}: neither records nor two heartbeats arrived. The master sends a heartbeat"
            " every haSendHeartbeatInterval; --quiet-timeout must be longer than two intervals"
        )

    def _topics(self, end: int) -> Counter[str]:
        """Count records by topic since the last mark but one, at most ``_MAX_RECORDS``."""
        begin = self._marks[0][1]
        records = self._log.scan_kept(start=begin) if end > begin else iter(())
        return Counter(record.topic for record in islice(records, _MAX_RECORDS))
