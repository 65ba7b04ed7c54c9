"""``cqstore export``: writes the messages of topics to a file or to a new store."""

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from cqstore.cli.csv_line import csv_line
from cqstore.cli.known_queues import require_queue, require_topic
from cqstore.cli.message_files.export_file import ExportPosition, part_file
from cqstore.cli.message_files.export_store import StoreWriter, new_store
from cqstore.cli.message_files.message_fields import FIELDS, ReadMessage
from cqstore.cli.message_files.message_format import MessageFormat
from cqstore.cli.message_files.text_files import (
    FileFormat,
    MessageWriter,
    TextWriter,
    csv_row,
    json_line,
)
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    note,
    open_store,
)
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.cli.selection import AnyQueue, Begin, End, Grep, Key, SelectedReads, Selection, Tags
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.message_store import MessageStore

_LINES = {FileFormat.JSONL, FileFormat.CSV}
_WRITTEN = [each for each in FileFormat if each is not FileFormat.ARCHIVE]
_SUFFIXES = {f".{each.value}": each for each in _WRITTEN if each is not FileFormat.STORE}
_Kind = FileFormat | MessageFormat

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="T", help="Topic to export. May be repeated. Default: all topics."
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT",
        help="Output format: jsonl, csv, parquet, arrow, store, or a line pattern as in cqstore"
        " tail. Default: by the suffix of --to, else jsonl.",
    ),
]  # fmt: skip
Target = Annotated[
    Path | None,
    typer.Option("--to", metavar="PATH", help="File or store to create. Default: standard output."),
    OutputPath(),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted export to a text file.")
]


def export(
    root: Dir,
    topics: Topics = None,
    queue_id: AnyQueue = None,
    begin: Begin = None,
    end: End = None,
    tags: Tags = None,
    key: Key = None,
    grep: Grep = None,
    kind: Kind = None,
    target: Target = None,
    *,
    resume: Resume = False,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
) -> None:
    """Write the messages of topics to a file or to a new store. Changes nothing in DIR.

    Topics are written one after the other, each in order of store time over all its queues. cqstore
    import reads the formats jsonl, csv, parquet, arrow and store.

    Until the file is complete, its name is PATH.part. Light queues are written only if --topic
    names them, because their messages are already in other topics. The exit code is 1 if damaged
    messages were skipped.

    Examples:
        cqstore export DIR --topic orders --to orders.jsonl
        cqstore export DIR --begin 2026-03-01T00:00:00Z --to march.parquet
    """
    form = _form(kind, target)
    selection = Selection.of(begin, end, queue_id, tags, key, grep)
    _check(form, target, resume=resume)
    request: dict[str, object] = {
        "store": str(root.absolute()), "topics": sorted({*(topics or ())}), "format": str(form),
        "begin": begin, "end": end, "queueId": queue_id, "tags": tags, "key": key, "grep": grep,
    }  # fmt: skip
    with open_store(root, config, backend, commit_log, check_crc_on_pull=True) as store:
        reads = SelectedReads(store, selection)
        count = _write(store, reads, topics, form, target, ExportPosition(request), resume=resume)
    note(f"{count} messages")
    if reads.damaged:
        raise typer.Exit(1)


def _form(kind: str | None, target: Path | None) -> _Kind:
    """Return the format of ``--format``, or else of the file name's suffix.

    Raises:
        typer.BadParameter: there is no such format.
    """
    if kind is None:
        suffix = "" if target is None else target.suffix
        return _SUFFIXES.get(suffix, FileFormat.JSONL)
    if "%" in kind:
        return MessageFormat(kind)
    if kind in _WRITTEN:
        return FileFormat(kind)
    known = ", ".join(each.value for each in _WRITTEN)
    raise typer.BadParameter(
        f"invalid format {kind!r}: expected {known}, or a line pattern with %t, %b ...",
        param_hint="--format",
    )


def _check(form: _Kind, target: Path | None, *, resume: bool) -> None:
    """Refuse contradicting options before the store is opened.

    Raises:
        typer.BadParameter: two options contradict each other.
    """
    is_lines = isinstance(form, MessageFormat) or form in _LINES
    if target is None and not is_lines:
        raise typer.BadParameter(f"{form} is not a text format: give --to")
    if resume and (target is None or not is_lines):
        raise typer.BadParameter("--resume requires --to and a text format: jsonl, csv, or %...")


def _write(
    store: MessageStore, reads: SelectedReads, topics: list[str] | None, form: _Kind,
    target: Path | None, position: ExportPosition, *, resume: bool,
) -> int:  # fmt: skip
    """Write the selected messages; return how many messages the file has now."""
    unseen = reads.unseen_topics()
    names = _topics(store, topics, reads.selection.queue_id, unseen)
    with ExitStack() as stack:
        writer, noted = _open_writer(stack, store, form, target, position, resume=resume)
        position = noted[0] if noted else position
        if position.messages:
            note(f"{position.messages} messages were already written before the interruption")
        end_of = _total(store, names) if reads.selection.is_all else None
        with progress("exporting", end_of, "messages") as tick:
            for read in _messages(reads, names, unseen, position):
                writer.write(read)
                position.messages += 1
                position.offsets[read.queue_id] = read.queue_offset + 1
                tick(position.messages)
                if noted:
                    noted[1]()
        writer.finish()
    return position.messages


def _topics(
    store: MessageStore, given: list[str] | None, queue_id: int | None, unseen: Collection[str]
) -> list[str]:
    """Return the topics to export, in order.

    Raises:
        NoSuchQueueError: a given topic does not exist.
    """
    if not given:
        known = {*store.topics(), *unseen}
        return sorted(name for name in known if not name.startswith(LMQ_PREFIX))
    for name in given:
        if name in unseen:
            continue
        require_topic(store, name)
        if queue_id is not None:
            require_queue(store, name, queue_id)
    return sorted({*given})


def _open_writer(
    stack: ExitStack, store: MessageStore, form: _Kind, target: Path | None,
    position: ExportPosition, *, resume: bool,
) -> tuple[MessageWriter, tuple[ExportPosition, Callable[[], object]] | None]:  # fmt: skip
    """Return the writer; for a text file also the position to continue from and its recorder."""
    if target is None:
        sys.stdout.flush()
        return _text(form, cast("BinaryIO", sys.stdout.buffer), is_new=True), None
    if form is FileFormat.STORE:
        return StoreWriter(stack.enter_context(new_store(target, store))), None
    if form is FileFormat.PARQUET or form is FileFormat.ARROW:
        from cqstore.cli.message_files import message_arrow  # noqa: PLC0415 - an extra

        message_arrow.require_arrow()
        part, _ = stack.enter_context(part_file(target, None, resume=False))
        return message_arrow.ColumnWriter(part.file, form), None
    part, begun = stack.enter_context(part_file(target, position, resume=resume))
    assert begun is not None
    return _text(form, part.file, is_new=not begun.written_bytes), (begun, part.note)


def _text(form: _Kind, file: BinaryIO, *, is_new: bool) -> TextWriter:
    """Return a writer of messages to ``file`` in a text format; a new CSV file gets its header."""
    if isinstance(form, MessageFormat):
        return TextWriter(file, form.line)
    if form is FileFormat.JSONL:
        return TextWriter(file, json_line)
    if is_new:
        file.write(csv_line(FIELDS).encode())
    return TextWriter(file, csv_row)


def _messages(
    reads: SelectedReads, names: list[str], unseen: Collection[str], position: ExportPosition
) -> Iterator[ReadMessage]:
    """Yield the messages after ``position``; move it to each topic that is started."""
    for name in names:
        if name < position.topic:
            continue
        if name != position.topic:
            position.topic, position.offsets = name, {}
        begins = dict(position.offsets)
        for read in reads.topic(
            name, begins, with_undispatched=name in unseen or name.startswith(LMQ_PREFIX)
        ):
            if read.queue_offset >= begins.get(read.queue_id, 0):
                yield read


def _total(store: MessageStore, names: list[str]) -> int:
    """Return the number of messages in the queues of the topics."""
    return sum(
        span.max_offset - span.min_offset for name in names for span in store.queue_spans(name)
    )
