"""``cqstore dump``: records, units and files as they lie on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from store.cli.dump_file import file_rows
from store.cli.known_queues import require_queue
from store.cli.options import (
    INT_MAX,
    LONG_MAX,
    Backend,
    CommitLogFolder,
    ConfigFile,
    Format,
    meant,
    open_store,
    read_config,
)
from store.cli.output import OutputFormat, Row, body_fields, output
from store.cli.rows import message_row, queue_row, sorted_queues, unit_rows
from store.errors import RefusedStoreError
from store.queue.units import QueueKey
from store.record.decoder import StoredMessage
from store.service.message_store import MessageStore

Place = Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A store, or one of its files.")]


def dump(
    place: Place,
    *,
    messages: Annotated[bool, typer.Option("--messages", help="Every record of the log.")] = False,
    queues: Annotated[bool, typer.Option("--queues", help="Every queue with its units.")] = False,
    commitlog_offset: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=LONG_MAX, help="The record that starts at this phy offset."
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(metavar="T", help="Units of this topic.")] = None,
    queue_id: Annotated[
        int, typer.Option(metavar="Q", min=0, max=INT_MAX, help="… of this queue")
    ] = 0,
    offset: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=LONG_MAX, help="… from this offset on"),
    ] = None,
    count: Annotated[int, typer.Option(metavar="M", min=1, help="… and so many.")] = 1,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Decode what lies on disk: a whole store, one record, some units, or a bare file.

    Shows the disk as it is, also of a store that needs recovery. Changes nothing.
    """
    asked = [messages, queues, commitlog_offset is not None, topic is not None]
    if place.is_file():
        if any(asked):
            raise typer.BadParameter("a bare file takes none of the store's options")
        output(kind).rows(file_rows(place, read_config(config)))
        return
    meant(place)
    if not place.exists():
        raise RefusedStoreError("no such file or folder", path=place)
    if sum(asked) != 1:
        raise typer.BadParameter("give one of --messages, --queues, --commitlog-offset, --topic")
    with open_store(place, config, backend, commit_log) as store:
        if messages:
            output(kind).rows(_messages(store))
        elif queues:
            keys = sorted_queues(store.queues)
            output(kind).rows(queue_row(store.queues, key) for key in keys)
        elif commitlog_offset is not None:
            output(kind).record(_whole(store.message_by_offset(commitlog_offset)))
        elif topic is not None:
            key = QueueKey(topic, queue_id)
            require_queue(store, topic, queue_id)
            output(kind).rows(_units(store, key, offset, count))


def _messages(store: MessageStore) -> Iterator[Row]:
    log = store.commit_log
    for record in log.scan(max(log.min_phy_offset(), 0)):
        yield message_row(StoredMessage(log.view(record.phy_offset, record.size)))


def _whole(message: StoredMessage) -> Row:
    row = message_row(message)
    row.update(body_fields(message.body))
    return row


def _units(store: MessageStore, key: QueueKey, offset: int | None, count: int) -> Iterator[Row]:
    first = store.min_offset(*key) if offset is None else offset
    last = min(first + count, store.max_offset(*key))
    for row in unit_rows(store.queues, key, first, last):
        if row is None:
            yield {"queueOffset": None, "problem": "missing unit"}
            continue
        names = ("queueOffset", "phy", "size", "tagsCode", "storeTimestamp", "messages")
        yield dict(zip(names, row, strict=False))
