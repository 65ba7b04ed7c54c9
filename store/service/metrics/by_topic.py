"""FiguresByTopic: puts to the busiest topics of an open store, and the lag of groups.

Puts count nothing for this. A sample reads a limited part of the log since the previous sample,
which shows the topics in use. The puts to each of these are then the difference of the ends of its
queues, and the log has the total, so the sum of the others is known. Cost and memory of a sample
depend on ``limit``, not on the numbers of topics or queues.
"""

import heapq
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.record.message import is_queued
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.metrics.by_group import FiguresByGroup, GroupOffsets, GroupSnapshot
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.runtime.running_state import RunningState

LIMIT = 20
_SAMPLED_RECORDS, _SAMPLED_BYTES = 4096, 4 << 20
_TRACKED = 4
"""Multiple of ``limit`` of topics that are tracked, so that one that was busy is found again."""
_UNCHECKED = ScanRules(check_crc=False)


class TopicFigures(NamedTuple):
    """The figures of one topic at one moment."""

    topic: str
    queues: int
    offset: int
    """Sum of the next offsets of its queues: the messages ever put to it."""
    messages: int
    """Messages whose records are in the log."""
    put_messages: int | None
    """Messages since the previous sample; for a topic that was not in it, sampled records only.

    ``None`` in the first sample, like all figures that depend on it.
    """
    put_bytes: int | None
    """Size of their records, estimated from the mean size of sampled records."""
    puts_per_second: float | None
    bytes_per_second: float | None


class TopicSnapshot(NamedTuple):
    """The busiest topics, and the sum of all others."""

    topics: tuple[TopicFigures, ...]
    """At most ``limit``, the busiest first; then the topics of the groups that are shown."""
    others_per_second: float | None
    others_bytes_per_second: float | None
    puts_per_second: float | None
    """Rate of the whole store."""
    bytes_per_second: float | None
    gets_per_second: float | None
    """Rate of messages that pulls returned."""
    groups: GroupSnapshot


@dataclass(slots=True)
class _Tracked:
    """A topic's figures in the previous sample."""

    offset: int
    mean_size: float
    """Mean size of its records in the last sample, in bytes."""


class _LogCounts(NamedTuple):
    """The store's counts at a sample."""

    seconds: float
    end: int
    bytes: int
    records: int
    gets: int


class _Sample(NamedTuple):
    """Sampled records since the previous sample, by topic."""

    topics: dict[str, tuple[int, int]]
    """Topic → records and their bytes."""
    records: int


class FiguresByTopic:
    """Samples one store repeatedly; a rate is that since the previous sample. Any thread.

    Each object has its own state: a caller with its own interval uses its own object.
    """

    def __init__(
        self, log: CommitLog, queues: QueueReads, puller: Puller, state: RunningState,
        limit: int, offsets: GroupOffsets | None = None, *, by_bytes: bool = False,
    ) -> None:  # fmt: skip
        """``limit``: number of separate topics, and of rows of groups; at least 1."""
        self._log, self._queues, self._puller, self._state = log, queues, puller, state
        self._limit, self._by_bytes = max(limit, 1), by_bytes
        self._groups = None if offsets is None else FiguresByGroup(queues, offsets, self._limit)
        self._lock = CheckedLock("the collection of figures by topic")  # guards all fields below
        self._tracked: dict[str, _Tracked] = {}
        self._before: _LogCounts | None = None
        self.clock = time.monotonic
        """Monotonic time in seconds."""

    def sample(self) -> TopicSnapshot:
        """Return the current figures. Units that wait to be dispatched are in no queue yet.

        Raises:
            StoreStateError: the store has been closed, or this is a child process.
            StoreError: a queue cannot be read.
        """
        with self._lock.entry():
            self._state.check_open()
            log, gets = self._log, self._puller.messages
            end = log.max_phy_offset()
            now = _LogCounts(self.clock(), end, end - log.blank_bytes, log.appended_records, gets)
            before = self._before
            groups = GroupSnapshot() if self._groups is None else self._groups.sample()
            found = self._snapshot(before, now, self._read_sample(before, end), groups)
            self._before = now
            return found

    def _snapshot(
        self, before: _LogCounts | None, now: _LogCounts, sample: _Sample, groups: GroupSnapshot
    ) -> TopicSnapshot:
        """Return rates and figures of the busiest topics, and of those that groups consume."""
        seconds = 0.0 if before is None else now.seconds - before.seconds
        added = None if before is None or seconds <= 0 else now.records - before.records
        of_groups = {each.topic for each in groups.groups}
        found = self._figures(sample, added, seconds, of_groups)
        extra = [each for each in found[self._limit :] if each.topic in of_groups]
        shown = (*found[: self._limit], *extra)
        if before is None or added is None:
            return TopicSnapshot(shown, None, None, None, None, None, groups)
        size = now.bytes - before.bytes
        left = max(added - sum(each.put_messages or 0 for each in shown), 0)
        left_bytes = max(size - sum(each.put_bytes or 0 for each in shown), 0)
        return TopicSnapshot(
            shown, left / seconds, left_bytes / seconds, added / seconds, size / seconds,
            (now.gets - before.gets) / seconds, groups,
        )  # fmt: skip

    def _figures(
        self, sample: _Sample, added: int | None, seconds: float, also: Collection[str]
    ) -> list[TopicFigures]:
        """Return the figures of the topics worth checking, the busiest first."""
        most = _TRACKED * self._limit
        sampled = heapq.nlargest(most, sample.topics, key=sample.topics.__getitem__)
        found = [
            figures
            for topic in {*sampled, *also, *self._tracked}
            if (figures := self._of_topic(topic, sample, added, seconds)) is not None
        ]
        found.sort(key=partial(_rank, sample=sample, by_bytes=self._by_bytes))
        kept = {each.topic for each in found[:most]}
        self._tracked = {name: of for name, of in self._tracked.items() if name in kept}
        return found

    def _of_topic(
        self, topic: str, sample: _Sample, added: int | None, seconds: float
    ) -> TopicFigures | None:
        """Return the figures of one topic; ``None``: it has no queue (yet)."""
        queues = offset = messages = 0
        for _, low, high in self._queues.spans(topic):
            queues, offset, messages = queues + 1, offset + high, messages + high - low
        before = self._tracked.pop(topic, None)
        if not queues:
            return None
        records, size = sample.topics.get(topic, (0, 0))
        mean = size / records if records else before.mean_size if before is not None else 0.0
        self._tracked[topic] = _Tracked(offset, mean)
        if added is None:
            return TopicFigures(topic, queues, offset, messages, None, None, None, None)
        if before is not None:  # if less than before, the topic was deleted, and has begun again
            put = offset - before.offset if offset >= before.offset else offset
        else:  # of a sample with all new records it is the sample's number
            put = round(added * records / max(sample.records, 1))
        put_bytes = round(put * mean)
        return TopicFigures(
            topic, queues, offset, messages, put, put_bytes, put / seconds, put_bytes / seconds
        )

    def _read_sample(self, before: _LogCounts | None, end: int) -> _Sample:
        """Read records from the end of the last sample on; the first time, of the newest file."""
        size = self._log.files.file_size
        start = max(end - 1, 0) // size * size if before is None else before.end
        start = max(start, self._log.min_phy_offset(), 0)
        scanned = self._log.scan(start, min(end, start + _SAMPLED_BYTES), _UNCHECKED)
        found: dict[str, tuple[int, int]] = {}
        count = 0
        with suppress(CorruptionError):  # damaged, or just expired: what was read is sufficient
            for record in islice(scanned, _SAMPLED_RECORDS):
                count += 1
                if is_queued(record.sys_flag):
                    records, total = found.get(record.topic, (0, 0))
                    found[record.topic] = records + 1, total + record.size
        return _Sample(found, count)


def _rank(figures: TopicFigures, sample: _Sample, *, by_bytes: bool) -> tuple[object, ...]:
    """Return the sort key of a topic, smallest for the busiest: by puts, else by the sample."""
    put = figures.put_bytes if by_bytes else figures.put_messages
    sampled = sample.topics.get(figures.topic, (0, 0))[by_bytes]
    return -(put or 0), -sampled, -figures.messages, figures.topic
