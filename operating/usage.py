"""The verb ``cqstore usage``."""

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from metadata.forms import read_forms
from metadata.model import BrokerMetadata, Form
from operating.one_form import end_with_faults, read_one_form
from operating.queue_usage import Usage, queue_usage, usage_by_day
from operating.ranking import Limit, Sort, ranked
from operating.topic_kind import TopicKind, group_of, parent_of, topic_kind
from store.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    note,
    open_store,
)
from store.cli.output import RowFormat, output
from store.cli.progress import progress
from store.cli.table import Row
from store.errors import RefusedStoreError, StoreConfigError
from store.progress import Progress, noop
from store.queue.facts import QueueSpan
from store.service.message_store import MessageStore


class By(StrEnum):
    """What a row is about."""

    TOPIC = "topic"
    GROUP = "group"
    PARENT = "parent"
    DAY = "day"


_TIMES = ("oldestStoreTimestamp", "newestStoreTimestamp")
COLUMNS = {
    By.TOPIC: ("topic", "kind", "queues", "units", "bytes", "share", *_TIMES),
    By.GROUP: (
        "group", "topics", "queues", "units", "bytes", "share", "retryUnits", "retryBytes",
        "deadUnits", "deadBytes", *_TIMES,
    ),
    By.PARENT: (
        "parent", "kind", "topics", "queues", "units", "bytes", "share", "lightUnits", *_TIMES,
    ),
    By.DAY: ("day", "queues", "units", "bytes", "share", *_TIMES),
}  # fmt: skip


@dataclass(slots=True)
class OwnerUsage:
    """What the queues of one owner come to: of a topic, group or parent, or of a day."""

    queues: int = 0
    topics: int = 0
    total: Usage = field(default_factory=Usage)
    """Without light queues: their records are those of other topics."""
    light: Usage = field(default_factory=Usage)
    retry: Usage = field(default_factory=Usage)
    dead: Usage = field(default_factory=Usage)

    def add(self, kind: TopicKind, usage: Usage) -> None:
        """Add one queue, or a part of one."""
        if kind is TopicKind.LIGHT:
            self.light.add(usage)
            return
        self.total.add(usage)
        if kind is TopicKind.RETRY:
            self.retry.add(usage)
        elif kind is TopicKind.DLQ:
            self.dead.add(usage)


Owners = dict[str | None, OwnerUsage]


def usage(
    root: Dir,
    by: Annotated[By, typer.Option(help="A row a topic, group, parent, or day (UTC).")] = By.TOPIC,
    sort: Sort = "bytes",
    limit: Limit = 0,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Topics that begin so alone.")] = "",
    *,
    unused: Annotated[
        bool, typer.Option("--unused", help="Topics that the broker's metadata does not know.")
    ] = False,
    form: Annotated[
        Form | None, typer.Option("--form", help="With --unused: the form that the broker reads.")
    ] = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Show what fills the log: units and bytes by topic, group, parent or day. Changes nothing.

    Counted from the queues alone, without expired units. A group has its retry and dead-letter
    topics, a parent its lite topics. Units of light queues point to records of other topics: they
    are no part of the totals. Times are store times in ms. Totals are on standard error. With --by
    group the exit code is 1 if some of the metadata cannot be read.

    With --unused only topics with queues that no topic of the metadata has the name of, without
    light queues and the broker's own: a broker with RocksDB queues deletes those. Refused without
    metadata, and if its topics cannot be read whole.
    """
    if (unused and by is not By.TOPIC) or (form is not None and not unused):
        raise StoreConfigError("--unused goes with --by topic, and --form with --unused")
    with open_store(root, config, backend, commit_log) as store:
        known = _known_topics(store, form) if unused else None
        metadata = _metadata(store, by)
        groups = {group for each in metadata for group in each.groups}
        whole_log = not prefix and known is None
        log = store.commit_log
        size = log.max_phy_offset() - max(log.min_phy_offset(), 0)
        passed = None if whole_log else store.queues.queues_estimate()
        with (
            progress("counting", size) if whole_log else progress("counting", passed, "queues")
        ) as tick:
            owners = _OwnersOf(
                store, by, prefix, known, groups, tick, of_queues=not whole_log
            ).owners()
        whole = sum(each.total.bytes for each in owners.values())
        rows = (_ROWS[by](name, each, whole) for name, each in owners.items())
        output(kind).rows(ranked(rows, sort, COLUMNS[by], limit))
        note(_totals(store, owners, whole))
    end_with_faults([fault for each in metadata for fault in each.faults])


def _totals(store: MessageStore, owners: Owners, whole: int) -> str:
    """Return in a sentence what all owners come to, beside the log."""
    log = store.commit_log
    units = sum(each.total.units for each in owners.values())
    light = sum(each.light.units for each in owners.values())
    return (
        f"{whole} bytes in {units} units, and {light} units of light queues; the log has "
        f"{log.max_phy_offset() - log.min_phy_offset()} bytes"
    )


class _OwnersOf:
    """One pass over the queues of a store."""

    def __init__(
        self, store: MessageStore, by: By, prefix: str, known: Container[str] | None,
        groups: Container[str], tick: Progress, *, of_queues: bool,
    ) -> None:  # fmt: skip
        """``groups``: those that are configured, for names of POP.

        ``known``: topics that are left out, and with them light and system ones.

        ``tick`` is told the bytes that were counted, without those of light queues; ``of_queues``:
        how many queues were passed, those that are left out among them.
        """
        self._counted = 0
        self._passed: Progress = tick if of_queues else noop
        self._tick: Progress = noop if of_queues else tick
        self._store, self._by, self._prefix, self._known = store, by, prefix, known
        self._groups = groups
        self._found: defaultdict[str | None, OwnerUsage] = defaultdict(OwnerUsage)

    def owners(self) -> Owners:
        """Return owner → what its queues come to."""
        last = None
        self._tick(0)
        for number, span in enumerate(self._store.queue_spans()):
            self._passed(number)
            topic = span.queue.topic
            if not topic.startswith(self._prefix) or self._is_known(topic):
                continue
            if self._by is By.DAY:
                self._add_days(span)
                continue
            owner = self._found[self._owner(topic)]
            owner.queues += 1
            owner.topics += topic != last
            kind = topic_kind(topic)
            is_light = kind is TopicKind.LIGHT
            told = noop if is_light else lambda size: self._tick(self._counted + size)
            found = queue_usage(self._store, span, told)
            self._counted += 0 if is_light else found.bytes
            self._tick(self._counted)
            owner.add(kind, found)
            last = topic
        return self._found

    def _is_known(self, topic: str) -> bool:
        if self._known is None:
            return False
        return topic in self._known or topic_kind(topic) in {TopicKind.LIGHT, TopicKind.SYSTEM}

    def _owner(self, topic: str) -> str | None:
        if self._by is By.GROUP:
            return group_of(topic, self._groups)
        return parent_of(topic) if self._by is By.PARENT else topic

    def _add_days(self, span: QueueSpan) -> None:
        """Add what a queue takes to the days that its messages were stored on."""
        days = set()
        kind = topic_kind(span.queue.topic)
        for number, found in usage_by_day(self._store, span):
            day = _day(number)
            self._found[day].add(kind, found)
            self._counted += 0 if kind is TopicKind.LIGHT else found.bytes
            self._tick(self._counted)
            days.add(day)
        for day in days:
            self._found[day].queues += 1


def _known_topics(store: MessageStore, form: Form | None) -> Container[str]:
    """Return the topics that the metadata configures.

    Raises:
        RefusedStoreError: there is none, it is damaged, has no topics, or has several forms.
    """
    metadata = read_one_form(store.paths, form)
    if metadata.faults:
        raise RefusedStoreError(f"topics are unused only by whole metadata: {metadata.faults[0]}")
    if not metadata.topics:
        raise RefusedStoreError("the metadata has no topics at all", path=metadata.path)
    return metadata.topics


def _metadata(store: MessageStore, by: By) -> list[BrokerMetadata]:
    """Return the metadata, in whatever forms, where it says which groups there are."""
    return read_forms(store.paths) if by is By.GROUP else []


def _day(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return (date(1970, 1, 1) + timedelta(number)).isoformat()
    except OverflowError:  # a record's time is whatever its producer's broker said
        return f"day {number}"


def _figures(owner: OwnerUsage, whole: int) -> Row:
    share = round(owner.total.bytes / whole, 6) if whole else 0.0
    return {"units": owner.total.units, "bytes": owner.total.bytes, "share": share}


def _times(owner: OwnerUsage) -> Row:
    seen = Usage()
    seen.add(owner.total)
    seen.add(owner.light)
    return dict(zip(_TIMES, (seen.oldest, seen.newest), strict=True))


def _topic(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    kind = topic_kind(name or "")
    row: dict[str, object] = {"topic": name, "kind": kind.value, "queues": owner.queues}
    if kind is TopicKind.LIGHT:
        row |= {"units": owner.light.units, "bytes": owner.light.bytes, "share": None}
        return {**row, **_times(owner)}
    return {**row, **_figures(owner, whole), **_times(owner)}


def _group(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {
        "group": name, "topics": owner.topics, "queues": owner.queues,
        **_figures(owner, whole), "retryUnits": owner.retry.units,
        "retryBytes": owner.retry.bytes, "deadUnits": owner.dead.units,
        "deadBytes": owner.dead.bytes, **_times(owner),
    }  # fmt: skip


def _parent(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {
        "parent": name, "kind": topic_kind(name or "").value, "topics": owner.topics,
        "queues": owner.queues, **_figures(owner, whole), "lightUnits": owner.light.units,
        **_times(owner),
    }  # fmt: skip


def _day_row(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {"day": name, "queues": owner.queues, **_figures(owner, whole), **_times(owner)}


_ROWS = {By.TOPIC: _topic, By.GROUP: _group, By.PARENT: _parent, By.DAY: _day_row}
