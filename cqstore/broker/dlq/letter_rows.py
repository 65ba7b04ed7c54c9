"""Reader and sums of the dead letters of a store, and the rows of ``cqstore dlq``."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from cqstore.broker.dlq.dead_letters import GroupLetters, LetterSums, dlq_topic, origin_topic
from cqstore.broker.groups.group_lag import GroupRows
from cqstore.broker.metadata.forms import NO_METADATA
from cqstore.broker.metadata.model import Form, Offsets
from cqstore.broker.one_form import find_one_form
from cqstore.broker.topic_kind import group_of
from cqstore.cli.message_files.message_fields import ReadMessage
from cqstore.cli.options import note
from cqstore.cli.progress import progress
from cqstore.cli.selection import SelectedReads
from cqstore.cli.table import Row
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.record.message import DLQ_PREFIX, RETRY_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class LettersBy(StrEnum):
    """Subject of a row of ``cqstore dlq``."""

    GROUP = "group"
    TOPIC = "topic"
    TIMES = "times"


_TIMES = ("firstStoreTimestamp", "lastStoreTimestamp")
_RETRIES = ("leastReconsumeTimes", "mostReconsumeTimes")
COLUMNS = {
    LettersBy.GROUP: ("group", "topics", "messages", *_RETRIES, "retryLag", *_TIMES),
    LettersBy.TOPIC: ("group", "originTopic", "messages", *_RETRIES, *_TIMES),
    LettersBy.TIMES: ("group", "originTopic", "reconsumeTimes", "messages", *_TIMES),
}


class StoreLetters:
    """Reader that sums the selected dead letters of a store."""

    def __init__(self, store: MessageStore, reads: SelectedReads, origin: str | None) -> None:
        self.store, self._reads, self._origin = store, reads, origin
        self._unseen = {name for name in reads.unseen_topics() if name.startswith(DLQ_PREFIX)}
        self.topics = sorted({*store.topics(DLQ_PREFIX), *self._unseen})
        """Dead-letter topics in name order."""
        self.messages = self.groups = self.unplaced = 0

    @property
    def passed_over(self) -> int:
        """Return the number of messages that could not be shown."""
        return self._reads.damaged + self.unplaced

    def of_group(self, group: str) -> Iterator[ReadMessage]:
        """Yield the dead letters of one group in order of store time."""
        topic = dlq_topic(group)
        for read in self._reads.topic(topic, with_undispatched=topic in self._unseen):
            if self._origin in {None, origin_topic(group, read.message.properties)}:
                yield read

    def sums(self, *, by_times: bool) -> Iterator[GroupLetters]:
        """Yield the sums of each group that has dead letters."""
        spans = (span for topic in self.topics for span in self.store.queue_spans(topic))
        total = sum(span.max_offset - span.min_offset for span in spans)
        with progress("reading", total, "messages") as tick:
            for topic in self.topics:
                found = GroupLetters(topic.removeprefix(DLQ_PREFIX), by_times=by_times)
                for read in self.of_group(found.group):
                    found.add(read)
                    self.messages += 1
                    tick(self.messages)
                if found.parts:
                    self.groups += 1
                    yield found


class RetryLags:
    """Lag of the retry topics of groups, by the consumer offsets in the metadata."""

    def __init__(self, store: MessageStore, form: Form | None, config: Path | None = None) -> None:
        """Read the metadata.

        Raises:
            RefusedStoreError: there are several forms, and ``form`` does not select one.
        """
        self._store = store
        metadata = find_one_form(components_of(store).paths, form, config)
        if metadata is None:
            note(f"{NO_METADATA}: retryLag is unknown")
        self._offsets: Offsets | None = None if metadata is None else metadata.offsets
        self.faults = [] if metadata is None else metadata.faults
        """Errors about unreadable parts of the metadata."""
        self._groups = set() if metadata is None else GroupRows(metadata).groups

    def lag(self, group: str) -> int | None:
        """Return the retry lag as in ``cqstore groups``; ``None`` without metadata.

        A queue without an offset counts from 0.
        """
        if self._offsets is None:
            return None
        known, lag = {*self._groups, group}, 0
        for topic in self._store.topics(RETRY_PREFIX + group):
            if group_of(topic, known) == group:
                row = self._offsets.get(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", {})
                for span in self._store.queue_spans(topic):
                    lag += span.lag(row.get(span.queue.queue_id, 0))
        return lag


def letter_rows(letters: StoreLetters, by: LettersBy, lags: RetryLags | None) -> Iterator[Row]:
    """Yield one row per group or part of a group; ``lags`` is used only for rows by group."""
    for found in letters.sums(by_times=by is LettersBy.TIMES):
        if by is LettersBy.GROUP:
            lag = lags.lag(found.group) if lags is not None else None
            total = found.total
            yield {
                "group": found.group, "topics": len(found.parts), "messages": total.messages,
                **_retries(total), "retryLag": lag, **_times(total),
            }  # fmt: skip
            continue
        for (origin, times), sums in found.parts.items():
            head: Row = {"group": found.group, "originTopic": origin}
            if by is LettersBy.TIMES:
                yield {**head, "reconsumeTimes": times, "messages": sums.messages, **_times(sums)}
            else:
                yield {**head, "messages": sums.messages, **_retries(sums), **_times(sums)}


def _retries(sums: LetterSums) -> Row:
    return dict(zip(_RETRIES, (sums.least_times, sums.most_times), strict=True))


def _times(sums: LetterSums) -> Row:
    return dict(zip(_TIMES, (sums.first, sums.last), strict=True))
