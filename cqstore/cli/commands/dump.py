"""``cqstore dump``: records, units and files as stored on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.dump_file import file_rows
from cqstore.cli.known_queues import require_queue
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.message_files.dump_rows import message_row, queue_row, sorted_queues, unit_rows
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    FirstOffset,
    Format,
    OneQueue,
    java_long,
    meant,
    note,
    open_store,
    read_config,
    refuse_beside,
)
from cqstore.cli.output import OutputFormat, body_fields, output
from cqstore.cli.progress import PHY_OFFSETS, counted
from cqstore.cli.table import Row
from cqstore.store.errors import CorruptionError, NoSuchMessageError, RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.log_span import span_at
from cqstore.store.path_kind import exists, is_file
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

Place = Annotated[
    Path, typer.Argument(metavar="DIR|FILE", help="Root folder of a store, or one of its files.")
]
Messages = Annotated[
    bool, typer.Option("--messages", help="Decode every record of the commit log.")
]
Queues = Annotated[bool, typer.Option("--queues", help="Decode every queue with its units.")]
LogOffset = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, callback=java_long, help="Phy offset of the record to decode."
    ),
]
Topic = Annotated[str | None, typer.Option(metavar="T", help="Topic whose units to decode.")]
Count = Annotated[int | None, typer.Option(metavar="M", min=1, help="Number of units. Default: 1.")]


def dump(
    place: Place, *, messages: Messages = False, queues: Queues = False,
    commitlog_offset: LogOffset = None, topic: Topic = None, queue_id: OneQueue = None,
    offset: FirstOffset = None, count: Count = None, config: ConfigFile = None,
    backend: Backend = None, commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Decode a whole store, one record, some units of a queue, or a single file.

    Give exactly one of --messages, --queues, --commitlog-offset and --topic for a store, and none
    of them for a single file. A file can be a commit log, queue, index or checkpoint file.

    The output shows the disk as it is, even if the store needs recovery. Changes nothing.

    Examples:
        cqstore dump DIR --topic orders --queue-id 0 --count 5
        cqstore dump DIR/checkpoint
    """
    requested = [messages, queues, commitlog_offset is not None, topic is not None]
    if is_file(place):
        if any(requested):
            raise typer.BadParameter(
                "--messages, --queues, --commitlog-offset and --topic need a store, not a file"
            )
        rows = file_rows(place, read_config(config))
        output(kind).rows(counted(rows, "dumping", None, "rows"))
        return
    meant(place)
    if not exists(place):
        raise RefusedStoreError("no such file or folder", path=place)
    if sum(requested) != 1:
        raise typer.BadParameter("give one of --messages, --queues, --commitlog-offset, --topic")
    if topic is None:
        by = ("--messages", "--queues", "--commitlog-offset")[requested.index(True)]
        refuse_beside(by, queue_id=queue_id, offset=offset, count=count)
    with open_store(place, config, backend, commit_log) as store:
        if messages:
            output(kind).rows(_messages(store))
        elif queues:
            output(kind).rows(_queues(store))
        elif commitlog_offset is not None:
            output(kind).record(_whole(_record_at(store, commitlog_offset)))
        elif topic is not None:
            key = QueueKey(topic, queue_id or 0)
            require_queue(store, *key)
            bounded = BoundedAnswer()
            units = _units(store, key, offset, count or 1, bounded)
            output(kind).rows(units, bounded.has_more)


def _messages(store: MessageStore) -> Iterator[Row]:
    log = components_of(store).log
    records = log.scan(max(log.min_phy_offset(), 0))
    end = log.max_phy_offset()
    for record in counted(records, "dumping", end, PHY_OFFSETS, lambda each: each.phy_offset):
        yield message_row(StoredMessage(log.view(record.phy_offset, record.size)))


def _queues(store: MessageStore) -> Iterator[Row]:
    keys = sorted_queues(components_of(store).queues)
    counted_keys = counted(keys, "dumping", len(keys), "queues")
    return (queue_row(components_of(store).queues, key) for key in counted_keys)


def _record_at(store: MessageStore, phy_offset: int) -> StoredMessage:
    """Return the record that begins at ``phy_offset``.

    Raises:
        NoSuchMessageError: no record begins there, and the log is sound.
        CorruptionError: the log is damaged there, or before it in the same file.
    """
    try:
        message = store.message_by_offset(phy_offset)
    except CorruptionError as exc:
        _refuse_within(components_of(store).log, phy_offset, exc)
        raise
    if message.phy_offset != phy_offset:  # a body may contain bytes that look like a record
        try:
            _refuse_within(components_of(store).log, phy_offset)
        except CorruptionError as exc:
            note(str(exc))
    return message


def _refuse_within(log: CommitLog, phy_offset: int, problem: CorruptionError | None = None) -> None:
    """Refuse a phy offset at which no record starts; the error describes what is there.

    ``problem``: the known damage at this offset.

    Raises:
        NoSuchMessageError: no record begins there.
        CorruptionError: whether a record begins there is unknown, because the log is damaged
            before.
    """
    low, high = max(log.min_phy_offset(), 0), log.max_phy_offset()
    none = f"no record starts at phy offset {phy_offset}"
    if not low <= phy_offset < high:
        raise NoSuchMessageError(f"{none}: the log ranges from {low} to {high}") from problem
    try:
        span = span_at(log, phy_offset, ScanRules())
    except CorruptionError as exc:
        if exc.phy_offset == phy_offset:
            raise problem or exc from None
        raise CorruptionError(
            f"cannot find a record at phy offset {phy_offset}: the log is damaged before it:"
            f" {exc.reason}", phy_offset=exc.phy_offset, expected=exc.expected, got=exc.got,
        ) from exc  # fmt: skip
    if span is None or (span.start == phy_offset and span.record is not None):
        return
    next_ = f"the next one starts at {span.end}" if span.end < high else "the log ends there"
    raise NoSuchMessageError(f"{none}: it is inside {span}; {next_}") from problem


def _whole(message: StoredMessage) -> Row:
    row = message_row(message)
    row.update(body_fields(message.body))
    return row


def _units(
    store: MessageStore, key: QueueKey, offset: int | None, count: int, bounded: BoundedAnswer
) -> Iterator[Row]:
    """Yield ``count`` units of a queue from ``offset`` on; a missing unit is a row of its own."""
    first = store.min_offset(*key) if offset is None else offset
    low, high = store.min_offset(*key), store.max_offset(*key)
    last = min(first + count, high)
    if first >= high:
        note(f"no unit at or after offset {first}: min offset {low}, max offset {high}")
    rows = unit_rows(components_of(store).queues, key, first, last)
    for row in counted(rows, "dumping", max(last - first, 0), "units"):
        if row is None:
            yield {"queueOffset": None, "problem": "missing unit"}
            continue
        names = ("queueOffset", "phy", "size", "tagsCode", "storeTimestamp", "messages")
        yield dict(zip(names, row, strict=False))
    if last < high:
        bounded.note_more(count, "units", f"--count; continue with --offset {last}")
