"""``cqstore topics``: topics and queues with their offsets."""

from collections.abc import Iterator
from typing import Annotated

import typer

from store.cli.options import Backend, CommitLogFolder, ConfigFile, Dir, Format, open_store
from store.cli.output import OutputFormat, Row, output
from store.queue.units import QueueKey
from store.service.message_store import MessageStore


def topics(
    root: Dir,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Only topics that begin so.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="At most so many; 0: all.")] = 0,
    after: Annotated[
        str,
        typer.Option(metavar="TOPIC/QUEUEID", help="Go on behind this queue, the last one shown."),
    ] = "",
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """List every queue with its type, minimum, maximum and messages. Changes nothing."""
    with open_store(root, config, backend, commit_log) as store:
        output(kind).rows(_rows(store, prefix, limit, _queue(after)))


def _queue(text: str) -> QueueKey | None:
    if not text:
        return None
    topic, slash, queue_id = text.rpartition("/")
    if not slash or not queue_id.isascii() or not queue_id.isdecimal():
        raise typer.BadParameter(f"{text!r} is not TOPIC/QUEUEID", param_hint="--after")
    return QueueKey(topic, int(queue_id))


def _rows(store: MessageStore, prefix: str, limit: int, after: QueueKey | None) -> Iterator[Row]:
    shown = 0
    for (topic, queue_id), low, high in store.queue_spans(after=after):
        if not topic.startswith(prefix):
            continue
        if limit and shown == limit:
            return
        shown += 1
        yield {
            "topic": topic,
            "queueId": queue_id,
            "type": store.queues.queue_type(topic).value,
            "min": low,
            "max": high,
            "messages": high - low,
        }
