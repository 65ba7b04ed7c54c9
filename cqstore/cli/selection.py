"""Selection of messages for ``tail``, ``get`` and ``export``: shared options and reader."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from cqstore.cli.commands.offset import TIME_FORMS, milliseconds
from cqstore.cli.message_files.message_fields import ReadMessage, read_messages
from cqstore.cli.options import java_int, note
from cqstore.store.errors import CorruptionError, StoreConfigError
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.reading.store_times import ALL, EARLIEST, LATEST, TimeRange, check_order
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import TopicDamage, TopicMessage, read_topic

Begin = Annotated[
    str | None,
    typer.Option(metavar="TIME", help=f"Earliest store time, inclusive: {TIME_FORMS}."),
]
End = Annotated[
    str | None, typer.Option(metavar="TIME", help=f"Latest store time, inclusive: {TIME_FORMS}.")
]
AnyQueue = Annotated[
    int | None,
    typer.Option(
        "--queue-id", metavar="Q", min=0, callback=java_int,
        help="Queue ID. Default: all queues of the topic.",
    ),
]  # fmt: skip
Tags = Annotated[
    str | None, typer.Option(metavar="EXPR", help="Tag filter, for example 'TagA || TagB'.")
]
Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="Message key: one of KEYS, or the UNIQ_KEY.")
]
Grep = Annotated[
    str | None,
    typer.Option(metavar="RE", help="Regular expression to search for in message bodies."),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT",
        help="Output format: jsonl, csv, json, table, or a line pattern, for example"
        " '%t %q %o %b' (topic, queue ID, queue offset, body).",
    ),
]  # fmt: skip


def time_span(begin: str | None, end: str | None) -> TimeRange:
    """Return the range of ``--begin`` and ``--end``.

    Raises:
        typer.BadParameter: an option is not a time, or the begin is after the end.
    """
    first = EARLIEST if begin is None else milliseconds(begin, "--begin", up=True)
    last = LATEST if end is None else milliseconds(end, "--end")
    try:
        check_order(first, last, begin, end, "--")
    except StoreConfigError as exc:
        raise typer.BadParameter(str(exc)) from exc
    return TimeRange(first, last)


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages of each topic that a verb reads."""

    times: TimeRange = ALL
    queue_id: int | None = None
    tags: TagFilter | None = None
    key: str | None = None
    grep: re.Pattern[bytes] | None = None

    @classmethod
    def of(
        cls, begin: str | None, end: str | None, queue_id: int | None, tags: str | None,
        key: str | None, grep: str | None,
    ) -> "Selection":  # fmt: skip
        """Return the selection that the options describe.

        Raises:
            typer.BadParameter: a time or the regular expression is invalid.
        """
        try:
            body = None if grep is None else re.compile(grep.encode("utf-8", "surrogateescape"))
        except re.error as exc:
            raise typer.BadParameter(
                f"invalid regular expression {grep!r}: {exc}", param_hint="--grep"
            ) from exc
        wanted = TagFilter(tags) if tags else None
        return cls(time_span(begin, end), queue_id, wanted, key, body)

    @property
    def is_all(self) -> bool:
        """Return whether every message of a topic is selected."""
        return self == Selection()

    @property
    def queue_ids(self) -> set[int] | None:
        """Return the ids of the queues to read; ``None``: all."""
        return None if self.queue_id is None else {self.queue_id}

    def takes(self, found: TopicMessage) -> bool:
        """Return whether a record matches the selected queue, time, tags and key."""
        message = found.message
        if self.queue_id is not None and found.queue_id != self.queue_id:
            return False
        if not self.times.holds(message.store_timestamp):
            return False
        if self.tags is not None and not self.tags.matches(message):
            return False
        if self.key is None:
            return True
        properties = message.properties
        keys = properties.get(MessageProperty.KEYS, "").split(" ")
        return self.key in keys or self.key == properties.get(MessageProperty.UNIQ_KEY)


class SelectedReads:
    """Reader of messages of an open store; damage is reported on stderr and counted."""

    def __init__(self, store: MessageStore, selection: Selection) -> None:
        self._store, self.selection = store, selection
        self.damaged = 0
        """Number of reports about units and records that were skipped."""

    def unseen_topics(self) -> set[str]:
        """Return the topics that have undispatched messages in the log."""
        return TopicFollower(components_of(self._store)).topics()

    def topic(
        self,
        topic: str,
        from_offsets: Mapping[int, int] | None = None,
        *,
        with_undispatched: bool = True,
    ) -> Iterator[ReadMessage]:
        """Yield the messages of ``topic``, undispatched ones last.

        ``from_offsets``: queue id → lowest queue offset to read. ``with_undispatched``: also read
        the log for messages that the queues do not have yet.
        """
        yield from self.queues(topic, from_offsets)
        if with_undispatched:
            yield from self.undispatched_messages(
                topic, TopicFollower(components_of(self._store)), from_offsets
            )

    def queues(
        self, topic: str, from_offsets: Mapping[int, int] | None = None
    ) -> Iterator[ReadMessage]:
        """Yield the messages in the queues of ``topic``."""
        wanted = self.selection
        found = read_topic(
            self._store, topic, *wanted.times, queue_ids=wanted.queue_ids,
            tags=wanted.tags, from_offsets=from_offsets,
            on_damage=lambda each: self._report(topic, each),
        )  # fmt: skip
        for each in found:
            yield from self.opened(topic, each)

    def undispatched_messages(
        self, topic: str, follower: TopicFollower, from_offsets: Mapping[int, int] | None = None
    ) -> Iterator[ReadMessage]:
        """Yield the undispatched messages that the follower finds now."""
        given = from_offsets or {}
        for each in follower.poll(topic):
            if each.queue_offset >= given.get(each.queue_id, 0):
                yield from self.opened(topic, each)
        for fault in follower.passed_over():
            self._count(f"a record of the log is skipped: {fault}")

    def opened(self, topic: str, found: TopicMessage) -> Iterator[ReadMessage]:
        """Yield the selected messages of a record."""
        if not self.selection.takes(found):
            return
        grep = self.selection.grep
        try:
            for read in read_messages(found.queue_offset, found.message, found.queue_id):
                if grep is None or grep.search(read.message.body):
                    yield read
        except CorruptionError as exc:
            self._report(topic, TopicDamage(found.queue_id, found.queue_offset, 1, str(exc)))

    def _report(self, topic: str, damage: TopicDamage) -> None:
        first, last = damage.queue_offset, damage.queue_offset + damage.units - 1
        units = f"unit {first} is" if first == last else f"units {first} to {last} are"
        self._count(f"{topic}, queue {damage.queue_id}: {units} skipped: {damage.reason}")

    def _count(self, sentence: str) -> None:
        self.damaged += 1
        note(sentence)
