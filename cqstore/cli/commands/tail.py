"""``cqstore tail``: prints the newest messages of a topic, and follows it."""

import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Annotated

import typer

from cqstore.cli.interrupts import INTERRUPTED, interrupts
from cqstore.cli.known_queues import require_queue, require_topic
from cqstore.cli.message_files.message_fields import ReadMessage
from cqstore.cli.message_files.message_output import MessageOutput
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    java_int,
    open_store,
)
from cqstore.cli.output import RowFormat
from cqstore.cli.selection import AnyQueue, Grep, Key, Pattern, SelectedReads, Selection, Tags
from cqstore.cli.streams import ReaderGoneError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import last_offsets

_POLL_MS = 200

Count = Annotated[
    int,
    typer.Option(
        "--count", "-n", metavar="N", min=0, callback=java_int,
        help="Number of newest messages to read.",
    ),
]  # fmt: skip
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep printing new messages until Ctrl-C.")
]


def tail(
    root: Dir,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name.")],
    count: Count = 10,
    *,
    follow: Follow = False,
    queue_id: AnyQueue = None,
    tags: Tags = None,
    key: Key = None,
    grep: Grep = None,
    pattern: Pattern = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.JSONL,
) -> None:
    """Print the newest messages of a topic, ordered by store time. Changes nothing.

    With --follow, the command keeps printing new messages, including those written by another
    process that has the store open. Press Ctrl-C to stop; the exit code is then 130.

    The filters --tags, --key and --grep apply to the last --count messages. The exit code is 1 if
    damaged messages were skipped.

    Examples:
        cqstore tail DIR orders -n 20
        cqstore tail DIR orders --follow --tags TagA
    """
    printed = MessageOutput(kind, pattern, endless=follow)
    selection = Selection.of(None, None, queue_id, tags, key, grep)
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        reads = SelectedReads(store, selection)
        with interrupts() as is_interrupted:
            wait = partial(wait_for_more, is_interrupted) if follow else None
            messages = messages_of_tail(store, reads, topic, count, wait)
            printed.messages(takewhile(lambda _: not is_interrupted(), messages))
            sys.stdout.flush()
            if is_interrupted():
                raise typer.Exit(INTERRUPTED)
    if reads.damaged:
        raise typer.Exit(1)


def messages_of_tail(
    store: MessageStore,
    reads: SelectedReads,
    topic: str,
    count: int,
    wait: Callable[[], bool] | None = None,
) -> Iterator[ReadMessage]:
    """Yield the last ``count`` messages, then new ones until ``wait`` returns False.

    Raises:
        NoSuchQueueError: the topic does not exist, or has no such queue.
    """
    follower, queue_ids = TopicFollower(components_of(store)), reads.selection.queue_ids
    unseen = (
        each for each in follower.poll(topic) if queue_ids is None or each.queue_id in queue_ids
    )
    newest = deque(unseen, count)  # messages that are not in the queues yet
    if not newest:
        require_topic(store, topic)
        if queue_ids is not None:
            require_queue(store, topic, *queue_ids)
    begins = last_offsets(store, topic, count - len(newest), queue_ids=queue_ids)
    yield from reads.queues(topic, begins)
    for found in newest:
        yield from reads.opened(topic, found)
    while wait is not None:
        yield from reads.undispatched_messages(topic, follower)
        if not wait():
            return


def wait_for_more(is_interrupted: Callable[[], bool]) -> bool:
    """Flush standard output and wait a moment; return whether to continue.

    Raises:
        ReaderGoneError: standard output was closed by its reader.
    """
    sys.stdout.flush()
    waiting = select.poll()
    with suppress(OSError, ValueError):  # no file descriptor: replaced by a caller in this process
        waiting.register(sys.stdout.fileno(), 0)
    if any(events & select.POLLERR for _, events in waiting.poll(_POLL_MS)):
        raise ReaderGoneError("standard output was closed by its reader")
    return not is_interrupted()
