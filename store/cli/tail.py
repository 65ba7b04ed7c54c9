"""``cqstore tail``: the newest messages of a topic over its queues, and those that come."""

import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated

import typer

from store.cli.known_queues import require_queue, require_topic
from store.cli.message_fields import ReadMessage
from store.cli.message_output import MessageOutput
from store.cli.options import (
    INT_MAX,
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    open_store,
)
from store.cli.output import RowFormat
from store.cli.selection import Grep, Key, Pattern, SelectedReads, Selection, Tags
from store.cli.streams import ReaderGoneError
from store.service.message_store import MessageStore
from store.service.reading.topic_follower import TopicFollower
from store.service.reading.topic_reader import last_offsets

INTERRUPTED = 128 + 2
"""As of a shell for a process that SIGINT ended."""
_POLL_MS = 200


def tail(
    root: Dir,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=0, max=INT_MAX, help="So many.")
    ] = 10,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")
    ] = False,
    queue_id: Annotated[
        int | None, typer.Option(metavar="Q", min=0, max=INT_MAX, help="Of this queue alone.")
    ] = None,
    tags: Tags = None,
    key: Key = None,
    grep: Grep = None,
    pattern: Pattern = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.JSONL,
) -> None:
    """Print the newest messages of a topic over all of its queues, by store time. Changes nothing.

    With --follow it goes on with messages as they come, also from another process that has the
    store open: read from the log as soon as they are whole there. Of the last N only those with
    --tags, --key and --grep are shown. Ctrl-C ends it with exit code 130.
    """
    printed = MessageOutput(kind, pattern, endless=follow)
    selection = Selection.of(None, None, queue_id, tags, key, grep)
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        reads = SelectedReads(store, selection)
        messages = _messages(store, reads, topic, count, follow=follow)
        try:
            printed.messages(messages)
        except KeyboardInterrupt:
            sys.stdout.flush()
            raise typer.Exit(INTERRUPTED) from None
    if reads.damaged:
        raise typer.Exit(1)


def _messages(
    store: MessageStore, reads: SelectedReads, topic: str, count: int, *,
    follow: bool, wait: Callable[[], object] | None = None,
) -> Iterator[ReadMessage]:  # fmt: skip
    """Yield the last ``count`` messages, then with ``follow`` those that come."""
    follower = TopicFollower(store)
    newest = deque(follower.poll(topic), count)  # which queues do not show yet
    queue_ids = reads.selection.queue_ids
    if not newest:
        require_topic(store, topic)
        if queue_ids is not None:
            require_queue(store, topic, *queue_ids)
    left = count - len(newest)
    begins = last_offsets(store, topic, left, queue_ids=queue_ids)
    yield from reads.queues(topic, begins)
    for found in newest:
        yield from reads.opened(topic, found)
    while follow:
        yield from reads.behind_queues(topic, follower)
        (wait or wait_for_more)()


def wait_for_more() -> None:
    """Flush what was printed and wait a moment.

    Raises:
        ReaderGoneError: nobody reads standard output any more.
    """
    sys.stdout.flush()
    waiting = select.poll()
    with suppress(OSError, ValueError):  # no file: of a caller in this process
        waiting.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in waiting.poll(_POLL_MS)):
        raise ReaderGoneError("the reader of standard output has gone")
