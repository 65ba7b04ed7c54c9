"""Meters: counts and times of the hot paths, at minimal cost.

A meter is only read by ``StoreMetrics``, and decides nothing. Counts under the append lock need no
lock of their own (``CommitLog.appended_records``); everything here takes its own lock, for a few
hundred nanoseconds, and is kept off the path of a single put.
"""

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cqstore.store.service.results import GetMessageResult, GetMessageStatus, PutMessageStatus
from cqstore.store.service.runtime import _histogram

_FOUND = GetMessageStatus.FOUND
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


class CountedPulls(Protocol):
    """Pulls that found messages, counted by the code that served them; see ``FastPull``."""

    @property
    def found(self) -> int:
        """Return the number of pulls that found messages."""

    @property
    def messages(self) -> int:
        """Return the number of messages that these pulls returned."""

    @property
    def total_bytes(self) -> int:
        """Return the size of the records of these messages, in bytes."""


class GetMeter:
    """Results and durations of all pulls. Any thread."""

    def __init__(self) -> None:
        self.seconds = Histogram()
        self._lock = threading.RLock()  # guards the fields below
        self._found = 0
        self._others = dict.fromkeys(GetMessageStatus, 0)
        self._messages = 0
        self._bytes = 0
        self.fast: CountedPulls | None = None
        """Pulls that compiled code counts itself."""

    def pulled(self, started: float, result: GetMessageResult) -> None:
        """Count one pull that began at ``started`` of ``time.perf_counter``."""
        self.took(time.perf_counter() - started, result)

    def took(self, seconds: float, result: GetMessageResult) -> None:
        """Count one pull that took ``seconds``."""
        self.seconds.observe(seconds)
        messages = result.record_count()
        with self._lock:
            if result.status is _FOUND:  # an enum as a key costs a call in Python
                self._found += 1
            else:
                self._others[result.status] += 1
            self._messages += messages
            self._bytes += result.total_bytes

    def add_batched(self, messages: int) -> None:
        """Count the additional messages in the records of a pull from a batch queue."""
        with self._lock:
            self._messages += messages

    def snapshot(self) -> GetCounts:
        """Return the counts so far."""
        with self._lock:
            found, messages, total_bytes = self._found, self._messages, self._bytes
            statuses = dict(self._others)
        if (fast := self.fast) is not None:
            found += fast.found
            messages += fast.messages
            total_bytes += fast.total_bytes
        return GetCounts({**statuses, _FOUND: found}, messages, total_bytes)
