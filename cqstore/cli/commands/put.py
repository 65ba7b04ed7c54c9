"""``cqstore put``: append messages, from options or from JSON lines on standard input."""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, BinaryIO

import typer

from cqstore.cli.message_files.message_lines import (
    IllegalLineError,
    MessageLine,
    done_before,
    message_lines,
)
from cqstore.cli.message_files.text_files import bounded_lines
from cqstore.cli.message_files.text_input import STDIN, text_reader
from cqstore.cli.new_store import nothing_half_made
from cqstore.cli.options import (
    Backend,
    ConfigFile,
    Dir,
    Format,
    New,
    OneQueue,
    config_to_put,
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import PHY_OFFSETS, progress
from cqstore.cli.streams import OutputError, standard_input
from cqstore.cli.table import Row
from cqstore.store.errors import IllegalMessageError
from cqstore.store.progress import Progress, noop
from cqstore.store.record.message import Message
from cqstore.store.record.properties import check_tag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult

_LIST = 256

Topic = Annotated[
    str | None,
    typer.Option(
        metavar="T", help="Topic of a single message. Default: read messages from standard input."
    ),
]
Body = Annotated[str | None, typer.Option(metavar="TEXT", help="Message body.")]
Tag = Annotated[str | None, typer.Option(metavar="TEXT", help="Message tag.")]
Keys = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Message keys, separated by spaces.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="NAME=VALUE", help="Message property. May be repeated."),
]
FirstLine = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="First line of standard input to append. Default: 1."),
]


def put(
    root: Dir,
    topic: Topic = None,
    queue_id: OneQueue = None,
    body: Body = None,
    tags: Tag = None,
    keys: Keys = None,
    properties: Properties = None,
    continue_from: FirstLine = None,
    *,
    new: New = False,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.JSONL,
) -> None:
    """Append messages and print their offsets. Opens DIR read-write.

    Opening the store read-write also recovers it. Without --topic, each line of standard input is a
    JSON object with topic, queueId, body or bodyBase64, properties, tags, keys and flag. JSON
    lines from cqstore get and export are accepted too; the offsets in them are ignored.

    The command stops at an invalid line. The messages before it are appended; continue with
    --continue-from. The exit code is 1 if the store refused a message.

    Examples:
        cqstore put DIR --topic orders --body hello --tags TagA
        cqstore put DIR --new < orders.jsonl
    """
    if topic is None:
        _refuse_without_topic(queue_id, body, tags, keys, properties)
        taken = _LinesTaken(standard_input())
        lines = message_lines(taken, continue_from or 1)
    elif continue_from is not None:
        raise typer.BadParameter("--continue-from cannot be combined with --topic")
    else:
        message = _message(topic, queue_id, body, tags, keys, properties)
        taken = _LinesTaken()
        lines = iter([MessageLine(1, message)])
    settings = config_to_put(config, root, new=new)
    with nothing_half_made(root, settings, new=new):
        with open_store(root, settings, backend, None, read_only=False) as store:
            refused = _put_and_print(store, taken, lines, kind)
        if refused:
            raise typer.Exit(1)


def _put_and_print(
    store: MessageStore, taken: "_LinesTaken", lines: Iterator[MessageLine], kind: OutputFormat
) -> int:
    """Append the messages of ``lines`` (read from ``taken``); return how many were refused.

    Raises:
        OutputError: the offsets cannot be printed; the error reports how many messages were
            appended and how to continue.
    """
    refused, done = 0, PutLines()

    def rows(tick: Progress) -> Iterator[Row]:
        nonlocal refused
        for result in put_all(store, lines, done, tick):
            refused += not result.ok
            yield _row(result)

    try:
        with _put_progress(taken) as tick:
            output(kind).rows(rows(tick))
            sys.stdout.flush()
    except OutputError as exc:
        raise type(exc)(f"{exc.reason}; {done.sentence()}") from exc
    return refused


@dataclass(slots=True)
class PutLines:
    """Number of appended messages, and the line after the last one."""

    count: int = 0
    next_line: int = 1

    def sentence(self) -> str:
        """Return how many messages were appended, and how to continue after an error."""
        return (
            f"{self.count} messages were appended; continue with --continue-from {self.next_line}"
        )


class _LinesTaken:
    """The lines of the input, if any, and the number of bytes read from its file."""

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._file, self._begin = file, 0
        self.size_bytes: int | None = None
        """Size of the input in bytes, possibly compressed; ``None``: it is not a file."""
        if file is not None:
            with suppress(OSError):
                found = os.fstat(file.fileno())
                if stat.S_ISREG(found.st_mode):
                    self._begin = file.tell()
                    self.size_bytes = found.st_size - self._begin

    def __iter__(self) -> Iterator[bytes]:
        if self._file is not None:
            yield from bounded_lines(text_reader(self._file, STDIN))

    @property
    def bytes(self) -> int:
        """Number of bytes read from the file."""
        return self._file.tell() - self._begin if self._file is not None else 0


@contextmanager
def _put_progress(taken: _LinesTaken) -> Iterator[Progress]:
    """Show how many messages were appended, and how much of the input file was read.

    Nothing is shown if the lines are typed at a terminal.
    """
    if sys.stdin is None or sys.stdin.isatty():
        yield noop
        return
    began, end = time.monotonic(), taken.size_bytes
    with progress("appending", end, "messages" if end is None else PHY_OFFSETS) as tick:
        tick(0)

        def put(count: int) -> None:
            if end is None:
                tick(count)
                return
            rate = count / max(time.monotonic() - began, 1e-3)
            tick.set_label(f"appending, {count:,} messages, {rate:,.0f} messages/s")
            tick(taken.bytes)

        yield put


def put_all(
    store: MessageStore,
    lines: Iterator[MessageLine],
    done: PutLines | None = None,
    progress: Progress = noop,
) -> Iterator[PutMessageResult]:
    """Append the messages in batches; before an invalid line raises, append those before it.

    ``done`` is updated after each batch, before its results are yielded; ``progress`` is called
    with the number of appended messages.

    Raises:
        IllegalMessageError: a line is not a valid message; the error reports how to continue.
    """
    done, fault = done or PutLines(), None
    while fault is None:
        group, fault = _group(lines)
        if not group:
            break
        results = store.put_messages([line.message for line in group])
        done.count += sum(result.ok for result in results)
        done.next_line = group[-1].number + 1
        progress(done.count)
        yield from results
    if fault is not None:
        way = done_before(done.count, fault.number)
        raise IllegalMessageError(f"{fault.reason} ({way})") from fault


def _group(lines: Iterator[MessageLine]) -> tuple[list[MessageLine], IllegalLineError | None]:
    """Return at most 256 messages, and the error that ended them early, if any."""
    group: list[MessageLine] = []
    try:
        while len(group) < _LIST and (line := next(lines, None)) is not None:
            group.append(line)
    except IllegalLineError as exc:
        return group, exc
    return group, None


def _refuse_without_topic(*fields: object) -> None:
    if any(field not in (None, []) for field in fields):
        raise typer.BadParameter(
            "--queue-id, --body, --tags, --keys and --property require --topic; without --topic,"
            " messages are read from standard input"
        )


def _message(
    topic: str,
    queue_id: int | None,
    body: str | None,
    tags: str | None,
    keys: str | None,
    properties: list[str] | None,
) -> Message:
    """Return the message that the options describe.

    Raises:
        typer.BadParameter: the body is missing, a property is invalid or given twice, or the tag is
            invalid.
    """
    if body is None:
        raise typer.BadParameter(
            "--topic requires --body TEXT (--body '' for an empty body); to read messages from"
            " standard input, one JSON object per line, leave out --topic"
        )
    if tags is not None:
        try:
            check_tag(tags)
        except IllegalMessageError as exc:
            raise typer.BadParameter(str(exc), param_hint="--tags") from exc
    pairs = [_pair(text) for text in properties or []]
    named = {"TAGS": tags, "KEYS": keys}
    pairs += [(name, text) for name, text in named.items() if text is not None]
    given = dict(pairs)
    if len(given) != len(pairs):
        raise typer.BadParameter("a property is given twice")
    data = body.encode("utf-8", "surrogateescape")  # the original bytes of the command line
    return Message(topic=topic, body=data, queue_id=queue_id or 0, properties=given)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"invalid property {text!r}: expected NAME=VALUE")
    return name, value


def _row(result: PutMessageResult) -> Row:
    """Return the result of a put as a row."""
    return {
        "status": result.status.name,
        "phy": result.phy_offset,
        "queueOffset": result.queue_offset,
        "msgId": result.message_id,
        "reason": result.reason,
    }
