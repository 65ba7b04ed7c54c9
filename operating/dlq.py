"""The verb ``cqstore dlq``."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from metadata.model import Form, Offsets
from operating.dead_letters import (
    Again,
    GroupLetters,
    LetterSums,
    PutAgain,
    dlq_topic,
    origin_topic,
)
from operating.group_lag import GroupLags, near_groups
from operating.one_form import BrokerForm, find_one_form
from operating.ranking import ranked
from operating.topic_kind import group_of
from store.broker_files import TOPIC_GROUP_SEPARATOR
from store.cli.message_fields import ReadMessage
from store.cli.message_output import MessageOutput
from store.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    note,
    open_store,
    refuse_beside,
)
from store.cli.output import Row, RowFormat, output
from store.cli.progress import progress
from store.cli.selection import Begin, End, Grep, Key, Pattern, SelectedReads, Selection, Tags
from store.errors import NoSuchQueueError
from store.record.message import DLQ_PREFIX, RETRY_PREFIX
from store.service.message_store import MessageStore


class By(StrEnum):
    """What a row is about."""

    GROUP = "group"
    TOPIC = "topic"
    TIMES = "times"


_TIMES = ("firstStoreTimestamp", "lastStoreTimestamp")
_RETRIES = ("leastReconsumeTimes", "mostReconsumeTimes")
COLUMNS = {
    By.GROUP: ("group", "topics", "messages", *_RETRIES, "retryLag", *_TIMES),
    By.TOPIC: ("group", "originTopic", "messages", *_RETRIES, *_TIMES),
    By.TIMES: ("group", "originTopic", "reconsumeTimes", "messages", *_TIMES),
}

OneGroup = Annotated[
    str | None, typer.Argument(metavar="GROUP", help="Print the dead letters of this group.")
]
RowOf = Annotated[
    By | None,
    typer.Option(help="A row a group, an original topic (the default), or number of retries."),
]
PutTo = Annotated[
    Again | None,
    typer.Option(help="With GROUP: as they are to be put, to their topic or to the group."),
]
Origin = Annotated[
    str | None, typer.Option("--topic", metavar="T", help="Of this original topic alone.")
]
Sort = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Order rows by this column: messages, if not given."),
]
Limit = Annotated[
    int, typer.Option(metavar="N", min=0, help="The first N rows or messages alone; 0: all.")
]
Kind = Annotated[
    RowFormat | None,
    typer.Option("--output", help="How to print: table, with GROUP jsonl, if not given."),
]


def dlq(
    root: Dir,
    group: OneGroup = None,
    by: RowOf = None,
    again: PutTo = None,
    origin: Origin = None,
    begin: Begin = None,
    end: End = None,
    tags: Tags = None,
    key: Key = None,
    grep: Grep = None,
    sort: Sort = None,
    limit: Limit = 0,
    pattern: Pattern = None,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Kind = None,
) -> None:
    """Show dead letters by group and original topic, or those of a group. Changes nothing.

    Counted are the messages of %DLQ%GROUP that are in the log, with how often they were consumed
    again, and the store times (ms) of the first and last. Totals are on standard error.

    With GROUP its messages are printed, as cqstore get prints them, oldest first. With --again they
    are as before their first failure, for cqstore import or put: in their original topic, where
    every group gets them, or in the retry topic of GROUP, which it alone consumes. Exit code 1 if
    something damaged, or a message that names no original topic, was passed over.
    """
    selection = Selection.of(begin, end, None, tags, key, grep)
    if group is None:
        _refuse_without_group(by, again, pattern, form)
    else:
        refuse_beside("GROUP", by=by, sort=sort, form=form)
    printed = MessageOutput(kind or RowFormat.JSONL, pattern)
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        letters = _DeadLetters(store, SelectedReads(store, selection), origin)
        if group is None:
            wanted = by or By.TOPIC
            rows = _rows(letters, wanted, _RetryLags(store, form) if by is By.GROUP else None)
            found = ranked(rows, sort or "messages", COLUMNS[wanted], limit)
            output(kind or RowFormat.TABLE).rows(found)
            note(f"{letters.messages} dead letters of {letters.groups} groups")
        else:
            _print_messages(letters, group.removeprefix(DLQ_PREFIX), again, limit, printed)
    if letters.passed_over:
        raise typer.Exit(1)


def _refuse_without_group(
    by: By | None, again: Again | None, pattern: str | None, form: Form | None
) -> None:
    """Refuse options that say nothing where no group is named.

    Raises:
        typer.BadParameter: one is given.
    """
    for option, value in (("--again", again), ("--format", pattern)):
        if value is not None:
            raise typer.BadParameter("it is about messages: name a GROUP", param_hint=option)
    if form is not None and by is not By.GROUP:
        raise typer.BadParameter("retryLag alone needs it: --by group", param_hint="--form")


class _DeadLetters:
    """What is asked for of the dead letters of a store."""

    def __init__(self, store: MessageStore, reads: SelectedReads, origin: str | None) -> None:
        self.store, self._reads, self._origin = store, reads, origin
        self._unseen = {name for name in reads.unseen_topics() if name.startswith(DLQ_PREFIX)}
        self.topics = sorted({*store.topics(DLQ_PREFIX), *self._unseen})
        """Of dead letters, in order."""
        self.messages = self.groups = self.unplaced = 0

    @property
    def passed_over(self) -> int:
        """Return how many messages could not be shown."""
        return self._reads.damaged + self.unplaced

    def of_group(self, group: str) -> Iterator[ReadMessage]:
        """Yield the dead letters of one group, by store time."""
        topic = dlq_topic(group)
        for read in self._reads.topic(topic, with_undispatched=topic in self._unseen):
            if self._origin in {None, origin_topic(group, read.message.properties)}:
                yield read

    def sums(self, *, by_times: bool) -> Iterator[GroupLetters]:
        """Yield the sums of each group that has any."""
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


class _RetryLags:
    """How many messages wait in the retry topics of groups, by the offsets of the metadata."""

    def __init__(self, store: MessageStore, form: Form | None) -> None:
        """Read the metadata.

        Raises:
            RefusedStoreError: it is there in several forms, and ``form`` names none of them.
        """
        self._store = store
        metadata = find_one_form(store.paths, form)
        if metadata is None:
            note("no metadata is there: retryLag is not known")
        self._offsets: Offsets | None = None if metadata is None else metadata.offsets
        self._groups = set() if metadata is None else GroupLags(store, metadata).groups

    def lag(self, group: str) -> int | None:
        """Return what ``cqstore groups`` calls the lag of retries; ``None``: there is no metadata.

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


def _rows(letters: _DeadLetters, by: By, lags: _RetryLags | None) -> Iterator[Row]:
    """Yield the rows of the sums, by group, by original topic, or by failures too."""
    for found in letters.sums(by_times=by is By.TIMES):
        if by is By.GROUP:
            lag = lags.lag(found.group) if lags is not None else None
            total = found.total
            yield {
                "group": found.group, "topics": len(found.parts), "messages": total.messages,
                **_retries(total), "retryLag": lag, **_times(total),
            }  # fmt: skip
            continue
        for (origin, times), sums in found.parts.items():
            head: Row = {"group": found.group, "originTopic": origin}
            if by is By.TIMES:
                yield {**head, "reconsumeTimes": times, "messages": sums.messages, **_times(sums)}
            else:
                yield {**head, "messages": sums.messages, **_retries(sums), **_times(sums)}


def _retries(sums: LetterSums) -> Row:
    return dict(zip(_RETRIES, (sums.least_times, sums.most_times), strict=True))


def _times(sums: LetterSums) -> Row:
    return dict(zip(_TIMES, (sums.first, sums.last), strict=True))


def _print_messages(
    letters: _DeadLetters, group: str, again: Again | None, limit: int, printed: MessageOutput
) -> None:
    """Print the dead letters of ``group``.

    Raises:
        NoSuchQueueError: it has no topic of dead letters.
    """
    if dlq_topic(group) not in letters.topics:
        known = [topic.removeprefix(DLQ_PREFIX) for topic in letters.topics]
        raise NoSuchQueueError(f"no dead letters of a group {group!r}{near_groups(group, known)}")
    reads = letters.of_group(group)
    made = None
    if again is not None:
        made = PutAgain(letters.store, group, again)
        reads = made.messages(reads)
    count = printed.messages(islice(reads, limit or None))
    note(f"{count} messages")
    if made is not None and made.unplaced:
        letters.unplaced = made.unplaced
        note(f"{made.unplaced} messages name no original topic and are passed over")
