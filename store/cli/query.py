"""``cqstore query``: messages by key and time."""

from typing import Annotated

import typer

from store.cli.get import message_row
from store.cli.known_queues import require_topic
from store.cli.offset import milliseconds
from store.cli.options import Backend, CommitLogFolder, ConfigFile, Dir, Format, note, open_store
from store.cli.output import OutputFormat, output


def query(
    root: Dir,
    topic: Annotated[str, typer.Option(metavar="T", help="The topic.")],
    key: Annotated[str, typer.Option(metavar="KEY", help="One of KEYS, or the UNIQ_KEY.")],
    count: Annotated[int, typer.Option("--max", metavar="M", min=1, help="At most so many.")] = 32,
    begin: Annotated[
        str, typer.Option(metavar="TIME", help="Stored at or after; ms, or ISO 8601 (UTC if bare).")
    ] = "0",
    end: Annotated[str | None, typer.Option(metavar="TIME", help="Stored at or before.")] = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.JSONL,
) -> None:
    """Print the newest messages of a topic with a key, in log order. Changes nothing."""
    span = [milliseconds(begin), milliseconds(end) if end else (1 << 63) - 1]
    with open_store(root, config, backend, commit_log) as store:
        if store.index is None:
            note("this store has no index that can be read: nothing can be found by key")
            raise typer.Exit(1)
        found = store.query_message(topic, key, count, *span)
        output(kind).rows(message_row(message.queue_offset, message) for message in found)
        if not found:
            require_topic(store, topic)
        note(f"{len(found)} messages")
