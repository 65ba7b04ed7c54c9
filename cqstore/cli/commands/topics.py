"""``cqstore topics``: lists topics and queues, finds idle topics, and deletes topics."""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cqstore.cli.known_queues import require_topic
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.message_files.text_input import text_input
from cqstore.cli.options import (
    WOULD_BE_DELETED,
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    Yes,
    bounded,
    java_long,
    note,
    open_store,
    open_to_delete,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import InputStream
from cqstore.cli.progress import counted
from cqstore.cli.table import Row
from cqstore.cli.topics_clean import (
    RATE,
    Clean,
    CleanForm,
    CleanRequest,
    Every,
    Lagging,
    Lite,
    Rate,
    Unused,
    interval,
)
from cqstore.cli.topics_clean import clean as run_clean
from cqstore.store.errors import IllegalMessageError, StoreConfigError
from cqstore.store.queue.facts import QueueSpan, known_time
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import RETRY_PREFIX
from cqstore.store.record.topic_names import is_reserved, is_system_topic
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.last_put import last_put

_DAY_MS = 86_400_000

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Topic to delete (requires --delete).")
]
Prefix = Annotated[str, typer.Option(metavar="TEXT", help="Prefix of the topic names.")]
Limit = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, callback=java_long, help="Maximum number of rows; 0 means all."
    ),
]
After = Annotated[
    str, typer.Option(metavar="TOPIC/QUEUEID", help="Queue after which to continue the list.")
]
Times = Annotated[
    bool, typer.Option("--times", help="Add the oldest and newest store time, in milliseconds.")
]
Idle = Annotated[
    float | None,
    typer.Option(
        metavar="DAYS", min=0, callback=bounded,
        help="List topics whose newest message is older than this many days.",
    ),
]  # fmt: skip
Delete = Annotated[
    bool, typer.Option("--delete", help="Delete the named topics, or those that --prefix selects.")
]
DeleteFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Delete the topics in FILE, one per line; - is standard input."
    ),
    InputStream(),
]


def topics(
    root: Dir, names: Names = None, prefix: Prefix = "", limit: Limit = 0, after: After = "", *,
    times: Times = False, idle: Idle = None, delete: Delete = False,
    delete_from: DeleteFrom = None, clean: Clean = False, unused: Unused = False,
    lite: Lite = False, lagging: Lagging = False, rate: Rate = RATE, every: Every = None,
    form: CleanForm = None, yes: Yes = False, config: ConfigFile = None,
    backend: Backend = None, commit_log: CommitLogFolder = None, kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """List every queue with its type, offset range and message count. Changes nothing.

    With --idle, each row is a topic without a new message for that many days, or without any
    message left. System topics are omitted.

    With --delete or --delete-from, the command lists the topics to delete; add --yes to delete
    their queues and consumer offsets. Records stay in the log until they expire, and the topics
    stay in the broker's metadata (topics.json). --delete --prefix leaves system topics out.

    With --clean, the command lists the topics that --unused, --idle or --lite select, with the
    reason for each that it keeps; add --yes to delete the others. System topics are always kept.

    Deletion is refused while another process has the store open. Nothing is deleted if a name is
    invalid, or if a topic on the command line has no queues. Topics in FILE may have none.

    Examples:
        cqstore topics DIR --prefix orders --times
        cqstore topics DIR orders --delete --yes
        cqstore topics DIR --clean --unused --idle 30
    """
    given, of_list = names or [], bool(limit or after or commit_log or times)
    request = CleanRequest(unused, idle, lite, lagging, prefix, rate, interval(every), form, yes)
    if clean or request.has_options_of_its_own:
        others = bool(given or delete or delete_from or of_list)
        run_clean(root, config, backend, request, kind, clean=clean, others=others)
        return
    if delete or delete_from:
        _refuse_beside_delete(others=of_list or idle is not None)
        if delete != bool(given or prefix) or (prefix and (given or delete_from)):
            raise StoreConfigError("--delete requires either topic names or --prefix")
        going = _delete(root, config, backend, given, delete_from, prefix, yes=yes)
        _report(going, kind, done=yes)
        return
    if given or yes:
        raise StoreConfigError(
            "topic names require --delete, and --yes requires --delete, --delete-from or --clean"
        )
    if idle is not None and (after or times):
        raise StoreConfigError("--idle cannot be combined with --after or --times")
    with open_store(root, config, backend, commit_log) as store:
        _print(store, prefix, limit, after, idle, kind, times=times)


def _print(
    store: MessageStore, prefix: str, limit: int, after: str, idle: float | None,
    kind: OutputFormat, *, times: bool,
) -> None:  # fmt: skip
    """Print the queues, or the topics that are ``idle`` for that many days."""
    answer = BoundedAnswer()
    rows = _rows(store, prefix, limit, _queue(after), answer, times=times)
    if idle is not None:
        rows = answer.limited(_idle_rows(store, prefix, idle), limit, "topics", "--limit")
    output(kind).rows(rows, answer.has_more)


def _refuse_beside_delete(*, others: bool) -> None:
    """Refuse options of a list together with those of a deletion.

    Raises:
        StoreConfigError: there are such ``others``.
    """
    if others:
        raise StoreConfigError(
            "--delete and --delete-from cannot be combined with --limit, --after, --commitlog,"
            " --times or --idle"
        )


def _queue(text: str) -> QueueKey | None:
    if not text:
        return None
    topic, slash, queue_id = text.rpartition("/")
    if not slash or not queue_id.isascii() or not queue_id.isdecimal():
        raise typer.BadParameter(
            f"invalid value {text!r}: expected TOPIC/QUEUEID", param_hint="--after"
        )
    return QueueKey(topic, int(queue_id))


def _rows(
    store: MessageStore, prefix: str, limit: int, after: QueueKey | None,
    answer: BoundedAnswer, *, times: bool,
) -> Iterator[Row]:  # fmt: skip
    """Yield a row for each queue of topics that begin with ``prefix``, ``limit`` at most."""
    shown, last = 0, QueueKey("", 0)
    end = None if after else components_of(store).queues.queues_estimate()
    if limit and not prefix:
        end = limit if end is None else min(limit, end)
    for span in counted(store.queue_spans(after=after), "listing", end, "queues"):
        (topic, queue_id), low, high = span
        if not topic.startswith(prefix):
            continue
        if limit and shown == limit:
            go_on = f"continue with --after {last.topic}/{last.queue_id}"
            answer.note_more(limit, "queues", f"--limit; {go_on}")
            return
        shown, last = shown + 1, span.queue
        row: dict[str, object] = {
            "topic": topic,
            "queueId": queue_id,
            "type": components_of(store).queues.queue_type(topic).value,
            "min": low,
            "max": high,
            "messages": high - low,
        }
        if times:
            row["oldestStoreTimestamp"] = _store_time(store, span, low)
            row["newestStoreTimestamp"] = _store_time(store, span, high - 1)
        yield row


def _store_time(store: MessageStore, span: QueueSpan, queue_offset: int) -> int | None:
    """Return the store time of a unit in ms; ``None`` if the queue has no messages."""
    if span.min_offset >= span.max_offset:
        return None
    timestamp = components_of(store).queues.queue(*span.queue).unit_timestamp(queue_offset)
    return known_time(timestamp)


# ---- idle topics


def _idle_rows(store: MessageStore, prefix: str, days: float) -> Iterator[Row]:
    """Yield each topic whose newest message was stored more than ``days`` ago.

    A queue whose newest store time cannot be read keeps its topic from being idle.
    """
    before = time.time() * 1000 - days * _DAY_MS
    about = components_of(store).queues.queues_estimate()
    every = counted(store.queue_spans(), "listing", about, "queues")
    for topic, spans in groupby(every, lambda span: span.queue.topic):
        if topic.startswith(prefix) and not is_system_topic(topic):
            queues = list(spans)
            last = last_put(components_of(store).queues, queues)
            if last.is_before(before):
                yield {
                    "topic": topic,
                    "queues": len(queues),
                    "messages": sum(span.max_offset - span.min_offset for span in queues),
                    "newestStoreTimestamp": last.newest,
                }


# ---- deleting


class _TopicsToDelete(NamedTuple):
    """The topics to delete, and which of them have queues."""

    names: list[str]
    rows: list[Row]
    retries: list[str]
    """Retry topics of these topics; they are not deleted."""


def _delete(
    root: Path, config: Path | None, backend: str | None, given: Sequence[str],
    delete_from: Path | None, prefix: str, *, yes: bool,
) -> _TopicsToDelete:  # fmt: skip
    """Find the topics that are given or begin with ``prefix``; delete them if ``yes``."""
    names = [*dict.fromkeys([*given, *(_names_in(delete_from) if delete_from else ())])]
    with open_to_delete(root, config, backend, yes=False) as store:
        if prefix:
            names = sorted(name for name in store.topics(prefix) if not is_system_topic(name))
        going = _found(store, names)
        for name in sorted(set(given) - {str(row["topic"]) for row in going}):
            require_topic(store, name)
        retries = _retries(store, names)
    if yes and going:
        with open_to_delete(root, config, backend, yes=True) as store:
            going = _found(store, names)  # a crash may have left log records undispatched
            store.delete_topics(str(row["topic"]) for row in going)
    return _TopicsToDelete(names, going, retries)


def _retries(store: MessageStore, names: Sequence[str]) -> list[str]:
    """Return the topics ``%RETRY%group+topic`` of ``names`` that are not in ``names``.

    A broker deletes them with their topic (``clearRetryTopicWhenDeleteTopic``). It also deletes
    topics named ``%RETRY%group_topic``, which can be the retry topics of other groups.
    """
    given = set(names)
    return [
        name for name in sorted(store.topics(RETRY_PREFIX))
        if name not in given and name.partition("+")[2] in given
    ]  # fmt: skip


def _names_in(path: Path) -> list[str]:
    """Return the non-empty lines of a file.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: the file is not UTF-8.
    """
    with text_input(path) as file:
        data = file.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise StoreConfigError(f"the topic names are not UTF-8: {exc}", path=path) from exc
    return [name for line in text.split("\n") if (name := line.removesuffix("\r"))]


def _found(store: MessageStore, names: Sequence[str]) -> list[Row]:
    """Return queues and messages of each topic of ``names`` that has queues.

    Raises:
        IllegalMessageError: a name is not a valid topic name, or is a topic of the broker itself.
    """
    for name in names:
        try:
            components_of(store).queues.check_topic(name)
        except IllegalMessageError as exc:
            raise IllegalMessageError(f"invalid topic {name!r}: {exc.reason}") from exc
        if is_reserved(name):
            raise IllegalMessageError(f"cannot delete {name!r}: it is a system topic of the broker")
    found: list[Row] = []
    for name in names:
        spans = [(store.min_offset(*key), store.max_offset(*key)) for key in store.queue_keys(name)]
        if spans:
            messages = sum(high - low for low, high in spans)
            found.append({"topic": name, "queues": len(spans), "messages": messages})
    return found


def _report(going: _TopicsToDelete, kind: OutputFormat, *, done: bool) -> None:
    """Print the topics, and a sentence on what was deleted or would be deleted."""
    output(kind).rows(going.rows)
    known = {row["topic"] for row in going.rows}
    unknown = [name for name in going.names if name not in known]
    if unknown:
        note(f"no queues found for {', '.join(map(repr, unknown))}")
    queues, messages = (
        sum(int(str(row[what])) for row in going.rows) for what in ("queues", "messages")
    )
    if going.retries:
        note(
            f"POP retry topics are kept: {', '.join(map(repr, going.retries))}. Name them to delete"
            " them too"
        )
    how = "deleted" if done else WOULD_BE_DELETED
    note(f"{len(going.rows)} topics with {queues} queues and {messages} messages {how}")
