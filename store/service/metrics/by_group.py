"""FiguresByGroup: the lag of consumer groups in the queues of an open store.

Offsets are compared with the ends of the queues on demand. A sample reads a limited number of
queues and continues where the previous one ended, so a pass over a million queues takes many
samples. In memory are the groups with the largest lag, and sums.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from cqstore.store.queue.facts import NO_RECORD_TIME
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.queue.units import QueueKey

QUEUES_A_LOOK = 8_192
_PAGE = 256
"""Number of rows of offsets that are read at once."""


class GroupOffsets(Protocol):
    """Offsets of consumer groups, as their owner returns them. Any thread."""

    def page(self, at: int, count: int) -> Sequence[tuple[str, str, Mapping[int, int]]]:
        """Return group, topic, and queue id → next offset, of ``count`` rows from row ``at`` on.

        Empty after the last row. A row that is added or removed meanwhile may be missing, or be
        returned twice.
        """

    def of_topic(self, group: str, topic: str) -> Mapping[int, int]:
        """Return queue id → next offset of one group in one topic."""


class GroupFigures(NamedTuple):
    """One topic of one group: sums over the queues in which it has offsets."""

    group: str
    topic: str
    offset: int
    """Sum of the next offsets that the group consumes."""
    lag: int
    """Messages up to the ends, including expired ones, as RocketMQ counts."""
    next_timestamp: int | None
    """Store time of the oldest next message in ms; ``None``: none is in the log."""


class GroupSnapshot(NamedTuple):
    """The groups with the largest lag."""

    groups: tuple[GroupFigures, ...] = ()
    """By lag, the largest first."""
    others_lag: int | None = 0
    """Sum of the others, from the last complete pass; ``None`` before the first one has ended."""


class _Ranked(NamedTuple):
    """A group's lag in a topic, in the order in which rows are ranked."""

    lag: int
    group: str
    topic: str


class FiguresByGroup:
    """The lag of the groups of one store, sample by sample. One thread at a time."""

    def __init__(
        self, queues: QueueReads, offsets: GroupOffsets, limit: int, budget: int = QUEUES_A_LOOK
    ) -> None:
        """``limit``: number of separate rows; ``budget``: approximate queues per sample."""
        self._queues, self._offsets = queues, offsets
        self._limit, self._budget = limit, budget
        self._at = 0
        self._best: list[_Ranked] = []  # of this pass: a heap, the smallest lag first
        self._lag = 0
        self._ranked: list[_Ranked] = []  # of the last complete pass
        self._whole_lag: int | None = None

    def sample(self) -> GroupSnapshot:
        """Continue the pass; return current figures of the groups with most lag in the last one.

        Raises:
            StoreError: a queue cannot be read.
        """
        self._walk()
        ranked = self._best if self._whole_lag is None else self._ranked
        shown = [found for each in ranked if (found := self._figures(each)) is not None]
        shown.sort(key=lambda each: (-each.lag, each.group, each.topic))
        others = None
        if self._whole_lag is not None:
            others = max(self._whole_lag - sum(each.lag for each in ranked), 0)
        return GroupSnapshot(tuple(shown), others)

    def _walk(self) -> None:
        """Continue through the offsets of all groups, within the budget."""
        left = self._budget
        while left > 0:
            page = self._offsets.page(self._at, _PAGE)
            if not page:
                self._end_pass()
                return
            self._at += len(page)
            for (group, topic, row), lag in zip(page, self._lags(page), strict=True):
                if not row:
                    continue
                left -= len(row)
                self._lag += lag
                ranked = _Ranked(lag, group, topic)
                if len(self._best) < self._limit:
                    heapq.heappush(self._best, ranked)
                else:
                    heapq.heappushpop(self._best, ranked)

    def _end_pass(self) -> None:
        self._ranked, self._whole_lag = self._best, self._lag
        self._best, self._lag, self._at = [], 0, 0

    def _lags(self, page: Sequence[tuple[str, str, Mapping[int, int]]]) -> Iterator[int]:
        """Yield the lag of each row; the queues of all are read together."""
        wanted = (QueueKey(topic, queue_id) for _, topic, row in page for queue_id in row)
        spans = self._queues.spans_of(wanted)
        for _, _, row in page:
            lag = 0
            for offset in row.values():
                lag += next(spans).lag(offset)
            yield lag

    def _figures(self, of: _Ranked) -> GroupFigures | None:
        """Return the current figures of one row; ``None``: it no longer exists."""
        row = self._offsets.of_topic(of.group, of.topic)
        if not row:
            return None
        lag, following = 0, []
        keys = [QueueKey(of.topic, queue_id) for queue_id in row]
        for span, offset in zip(self._queues.spans_of(keys), row.values(), strict=True):
            lag += span.lag(offset)
            if (at := max(offset, span.min_offset)) < span.max_offset:
                following.append((span.queue, at))
        stamps = self._queues.unit_timestamps(following)
        times = [each for each in stamps if each != NO_RECORD_TIME]
        offset = sum(row.values())
        return GroupFigures(of.group, of.topic, offset, lag, min(times, default=None))
