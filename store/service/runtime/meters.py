"""Meters: counts and times of the hot paths, at minimal cost.

A meter is only read by ``StoreMetrics``, and decides nothing. Counts under the append lock need no
lock of their own (``CommitLog.appended_records``); everything here takes its own lock, for a few
hundred nanoseconds, and is kept off the path of a single put.
"""

import threading
from collections.abc import Mapping
from typing import NamedTuple

from cqstore.store.service.results import GetMessageStatus, PutMessageStatus
from cqstore.store.service.runtime import _histogram

Histogram = _histogram.Histogram


class PutMeter:
    """Durations of puts, and the puts that did not end with ``PUT_OK``. Any thread.

    Messages and bytes are not counted here: the log counts them.
    """

    def __init__(self) -> None:
        self.seconds = Histogram()
        """Durations of calls that put one message; a sample, see ``Putter``."""
        self.list_seconds = Histogram()
        """Durations of all calls that put several messages."""
        self._lock = threading.RLock()  # guards the fields below
        self._fallbacks = 0
        self.hooked = self.hook_refusals = self.hook_failures = 0
        self._not_ok = dict.fromkeys(PutMessageStatus, 0)
        del self._not_ok[PutMessageStatus.PUT_OK]

    def count_fallback(self, messages: int = 1) -> None:
        """Count messages that were stored, but not by one compiled call (``FastPut``)."""
        with self._lock:
            self._fallbacks += messages

    def count_hooked(self) -> None:
        """Count a message that is passed to put hooks."""
        with self._lock:
            self.hooked += 1

    def count_hook_refusal(self) -> None:
        """Count a message that a put hook refuses."""
        with self._lock:
            self.hook_refusals += 1

    def count_hook_failure(self) -> None:
        """Count a call of a put hook that failed."""
        with self._lock:
            self.hook_failures += 1

    @property
    def fallbacks(self) -> int:
        """Return how many messages were stored without the fast path."""
        return self._fallbacks

    def not_ok(self, status: PutMessageStatus, messages: int = 1) -> None:
        """Count messages that were refused, or stored with a warning."""
        with self._lock:
            self._not_ok[status] += messages

    def statuses(self) -> Mapping[PutMessageStatus, int]:
        """Return how many messages ended with each status except ``PUT_OK``, including zeros."""
        with self._lock:
            return dict(self._not_ok)


class GetCounts(NamedTuple):
    """Counts of pull results."""

    statuses: Mapping[GetMessageStatus, int]
    """Calls per status, including zeros."""
    messages: int
    """Messages; a record of a batch queue holds several.

    Source: RocketMQ ``StoreStatsService.getGetMessageTransferredMsgCount``.
    """
    total_bytes: int
