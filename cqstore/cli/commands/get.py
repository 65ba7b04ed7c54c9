"""``cqstore get``: prints messages by queue offset, ID, key or time."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from cqstore.cli.known_queues import require_queue, require_topic
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.message_files.message_fields import read_messages
from cqstore.cli.message_files.message_output import MessageOutput
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    FirstOffset,
    Rows,
    java_int,
    note,
    open_store,
    refuse_beside,
)
from cqstore.cli.output import RowFormat
from cqstore.cli.progress import counted
from cqstore.cli.selection import Begin, End, Key, Pattern, SelectedReads, Selection, Tags
from cqstore.store.errors import CorruptionError, NoSuchMessageError
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import DamagedRecord, GetMessageStatus

_COUNT = 32

Topic = Annotated[str | None, typer.Option(metavar="T", help="Topic name.")]
OneQueue = Annotated[
    int | None,
    typer.Option(
        metavar="Q",
        min=0,
        callback=java_int,
        help="Queue ID. Default: 0, or all queues with --begin or --end.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        metavar="M",
        min=1,
        callback=java_int,
        help="Maximum number of messages. Default: 32, or no limit with --begin or --end.",
    ),
]
MessageId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Offset message ID (offsetMsgId). For an ID that a client set, use --key.",
    ),
]


def get(
    root: Dir, topic: Topic = None, queue_id: OneQueue = None, offset: FirstOffset = None,
    count: Count = None, tags: Tags = None, key: Key = None, message_id: MessageId = None,
    begin: Begin = None, end: End = None, pattern: Pattern = None, config: ConfigFile = None,
    backend: Backend = None, commit_log: CommitLogFolder = None, kind: Rows = RowFormat.JSONL,
) -> None:  # fmt: skip
    """Print messages with their bodies (as text, or Base64 if not UTF-8). Changes nothing.

    Give --topic with --offset, with --key, or with --begin and --end. Or give --message-id alone. A
    time range covers all queues of the topic, in order of store time, unless --queue-id is given.

    Standard error shows where the messages end and what is damaged. The exit code is 1 if damaged
    messages were skipped.

    Examples:
        cqstore get DIR --topic orders --queue-id 0 --offset 100 --count 10
        cqstore get DIR --topic orders --begin 2026-03-01T00:00:00Z
    """
    if (topic is None) == (message_id is None):
        raise typer.BadParameter(
            "give --topic (with --offset, --key, or --begin and --end), or --message-id"
        )
    printed = MessageOutput(kind, pattern)
    timed, limit = begin is not None or end is not None, count or _COUNT
    _refuse_together(queue_id, offset, count, tags, key, message_id, timed=timed)
    selection = Selection.of(begin, end, queue_id, tags, None, None)
    with open_store(
        root, config, backend, commit_log, check_crc_on_pull=True, max_msgs_num_batch=limit
    ) as store:
        if timed:
            _print_between(store, topic or "", selection, count, printed)
            return
        found: Iterable[tuple[int, StoredMessage]]
        damaged: list[DamagedRecord] = []
        bounded = BoundedAnswer()
        if message_id is not None:
            message = _by_id(store, message_id)
            found = [(message.queue_offset, message)]
        elif key is not None:
            found = _by_key(store, topic or "", key, limit, bounded)
        else:
            found = _from(
                store, topic or "", queue_id or 0, offset, limit, selection, damaged, bounded
            )
        reads = (read for each in found for read in read_messages(*each))
        printed.messages(reads, bounded.has_more)
        if damaged:
            raise typer.Exit(1)


def _refuse_together(
    queue_id: int | None, offset: int | None, count: int | None, tags: str | None,
    key: str | None, message_id: str | None, *, timed: bool,
) -> None:  # fmt: skip
    """Refuse options that select messages in different ways.

    Raises:
        typer.BadParameter: more than one of ID, key, time range and offset is given.
    """
    if message_id is not None or key is not None:
        by = "--message-id" if message_id is not None else "--key"
        refuse_beside(by, queue_id=queue_id, offset=offset, tags=tags)
    if message_id is not None:
        refuse_beside("--message-id", key=key, count=count)
    if timed:
        refuse_beside("--begin or --end", offset=offset, key=key, message_id=message_id)


def _by_key(
    store: MessageStore, topic: str, key: str, count: int, bounded: BoundedAnswer
) -> list[tuple[int, StoredMessage]]:
    found = store.query_message(topic, key, count)
    if not found:
        require_topic(store, topic)
    bounded.note_older(found, "--count")
    return [(message.queue_offset, message) for message in found]


def _print_between(
    store: MessageStore, topic: str, selection: Selection, count: int | None, printed: MessageOutput
) -> None:
    """Print the messages of a topic that were stored between two times.

    Raises:
        typer.Exit: damaged messages were skipped.
    """
    if selection.queue_id is None:
        require_topic(store, topic)
    else:
        require_queue(store, topic, selection.queue_id)
    reads, bounded = SelectedReads(store, selection), BoundedAnswer()
    wanted = bounded.limited(reads.topic(topic), count, "messages", "--count")
    found = counted(wanted, "reading", count, "messages")
    note(f"{printed.messages(found, bounded.has_more)} messages")
    if reads.damaged:
        raise typer.Exit(1)


def _by_id(store: MessageStore, message_id: str) -> StoredMessage:
    """Return the message with an ID; the log may have another message at the ID's phy offset.

    Raises:
        NoSuchMessageError: this store has no message with the ID.
        IllegalMessageError: the ID is invalid.
    """
    host, phy_offset = decode_message_id(message_id)
    whose = f"message ID {message_id} refers to {host_text(host)}, phy offset {phy_offset}"
    low, high = store.min_phy_offset(), store.max_phy_offset()
    if not low <= phy_offset < high:
        raise NoSuchMessageError(
            f"{whose}, but this log ranges from {low} to {high} (for an ID that a client set, use"
            " --topic T --key ID)"
        )
    try:
        message = store.message_by_offset(phy_offset)
    except CorruptionError as exc:
        raise NoSuchMessageError(
            f"{whose}, where no message of this log starts: the ID belongs to another broker, or"
            f" the record is damaged (see cqstore check): {exc}"
        ) from exc
    if message.message_id != message_id.upper():
        raise NoSuchMessageError(
            f"{whose}, where this log has message {message.message_id} of"
            f" {host_text(message.store_host)}: the ID belongs to another broker"
        )
    return message


def _from(
    store: MessageStore, topic: str, queue_id: int, offset: int | None, count: int,
    selection: Selection, damaged: list[DamagedRecord], bounded: BoundedAnswer,
) -> Iterable[tuple[int, StoredMessage]]:  # fmt: skip
    """Return ``count`` messages of a queue, starting at an offset.

    Raises:
        NoSuchQueueError: the queue does not exist.
    """
    require_queue(store, topic, queue_id)
    tags = selection.tags or TagFilter()
    pulled = _pull(store, topic, queue_id, offset, count, tags, damaged, bounded)
    return counted(pulled, "reading", count, "messages")


def _pull(
    store: MessageStore, topic: str, queue_id: int, offset: int | None, count: int,
    tags: TagFilter, damaged: list[DamagedRecord], bounded: BoundedAnswer,
) -> Iterator[tuple[int, StoredMessage]]:  # fmt: skip
    """Pull until there are ``count`` messages or the queue ends; report skipped units."""
    at = store.min_offset(topic, queue_id) if offset is None else offset
    left = count
    while True:
        result = store.get_message(topic, queue_id, at, left, tags)
        messages = result.messages()
        yield from zip(result.queue_offsets, messages, strict=True)
        damaged += result.damaged
        for record in result.damaged:
            note(f"unit {record.queue_offset} is skipped: {record.reason}")
        left -= len(messages)
        if (
            result.status not in _GOING_ON and not result.damaged
        ) or result.next_begin_offset >= result.max_offset:
            hole = result.hole
            missing = f", units {hole.start} to {hole.stop - 1} are missing" if hole else ""
            note(
                f"{result.status.name}{missing}: next offset "
                f"{result.next_begin_offset}, min {result.min_offset}, max {result.max_offset}"
            )
            return
        at = result.next_begin_offset
        if left <= 0:
            bounded.note(
                f"only the first {count} messages are shown: the max offset is"
                f" {result.max_offset} (--count; continue with --offset {at})"
            )
            return


_GOING_ON = (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE)
