"""``cqstore import``: append the messages of a file or of another store to a store."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.interrupts import INTERRUPTED, interrupts
from cqstore.cli.message_files.archive_manifest import is_archive
from cqstore.cli.message_files.import_position import (
    ImportPosition,
    RowsDigest,
    pass_rows_put,
    rows_behind,
)
from cqstore.cli.message_files.message_fields import to_put
from cqstore.cli.message_files.message_lines import (
    BeyondEndError,
    IllegalLineError,
    MessageLine,
    done_before,
    refuse_beyond,
)
from cqstore.cli.message_files.text_files import FileFormat, read_csv, read_json_lines
from cqstore.cli.message_files.text_input import COMPRESSED_SUFFIXES, STDIN, is_stream
from cqstore.cli.new_store import nothing_half_made
from cqstore.cli.options import (
    Backend,
    ConfigFile,
    Dir,
    Format,
    New,
    config_to_put,
    note,
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import InputStream, OutputPath
from cqstore.cli.progress import progress
from cqstore.cli.selection import SelectedReads, Selection
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreError,
    UnsupportedFormatError,
)
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.progress import Progress
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType

_SECONDS = 2.0
"""Seconds between two writes of the position."""

Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="File from cqstore export, a store, an archive, or - for standard input.",
    ),
    InputStream(),
]
Kind = Annotated[
    FileFormat | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"Format of FILE: {', '.join(FileFormat)}. Default: by its name. A folder is a store"
        " or an archive.",
    ),
]
ContinueFrom = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="First line or row to append. Default: 1.")
]
PositionFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="File that records the progress. If it exists, the import continues from there.",
    ),
    OutputPath(),
]


def import_(
    root: Dir, source: Source, kind: Kind = None, continue_from: ContinueFrom = None,
    position: PositionFile = None, *, new: New = False, config: ConfigFile = None,
    backend: Backend = None, out: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Append messages from a file, an archive or another store. Opens DIR read-write.

    Opening the store read-write also recovers it. Topic, queue, body, properties, flags, born time
    and hosts are kept. Queue offsets, phy offsets and store times are new.

    The import stops at a row that is invalid or that the store refuses. The rows before it are
    appended and flushed to disk. Use --continue-from or --position to continue.

    Examples:
        cqstore import DIR orders.jsonl
        cqstore import DIR orders.parquet --new --position orders.pos
    """
    form = _form(source, kind)
    if position is not None and continue_from is not None:
        raise typer.BadParameter("--continue-from cannot be combined with --position")
    settings = config_to_put(config, root, new=new)
    begun = None if position is None else _begun(position, source)
    digest: RowsDigest | None = RowsDigest()
    if form is FileFormat.ARCHIVE or (begun is not None and not begun.rows_digest):
        digest = None
    first = begun.next_row if begun else continue_from or 1
    with nothing_half_made(root, settings, new=new), ExitStack() as stack:
        rows = _rows(stack, root, source, form, 1 if begun and digest else first)
        if begun is not None and digest is not None:
            rows = rows_behind(begun, rows, digest, source)
        store = stack.enter_context(
            open_store(
                root, settings, backend, None, read_only=False,
                flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            )
        )  # fmt: skip
        if begun is not None:
            first = pass_rows_put(store, begun, rows, digest)
        done = _Import(store, source, position, first, digest)
        _run(done, rows)
        found = {"put": done.count, "next": done.next_row, "phy": store.max_phy_offset()}
    output(out).record(found)


def _begun(position: Path, source: Path) -> ImportPosition | None:
    """Return the progress of an import from its position file; ``None`` if the file does not exist.

    Raises:
        RefusedStoreError: the file is a folder or belongs to another import, or ``source`` is a
            pipe, which cannot be read again.
        CorruptionError: the file is not a valid position file.
    """
    if is_stream(source):
        raise RefusedStoreError(
            "--position requires an input file that can be read again, not a pipe", path=source
        )
    if is_dir(position):
        raise RefusedStoreError("the path of --position is a folder, not a file", path=position)
    return ImportPosition.read(position, source) if exists(position) else None


def _run(done: "_Import", rows: Iterator[MessageLine]) -> None:
    """Append the messages of ``rows`` and show the progress, until Ctrl-C.

    Raises:
        typer.Exit: Ctrl-C was pressed; the number of appended messages is reported.
    """
    with progress("importing", unit="messages") as tick, interrupts() as is_interrupted:
        done.run(takewhile(lambda _: not is_interrupted(), rows), tick)
        if is_interrupted():
            note(f"interrupted at row {done.next_row}: {done_before(done.count, done.next_row)}")
            raise typer.Exit(INTERRUPTED)


def _form(source: Path, kind: FileFormat | None) -> FileFormat:
    """Return the given format, or else the format by the name of ``source``.

    Raises:
        RefusedStoreError: ``source`` does not exist, or the format cannot be read from a pipe.
        UnsupportedFormatError: the name does not show the format.
    """
    if source != STDIN and not exists(source):
        raise RefusedStoreError("no such file", path=source)
    if kind is not None:
        if is_stream(source) and kind not in {FileFormat.JSONL, FileFormat.CSV}:
            raise RefusedStoreError(f"cannot read {kind} from a pipe: give a file", path=source)
        return kind
    if is_dir(source):
        return FileFormat.ARCHIVE if is_archive(source) else FileFormat.STORE
    name = source.with_suffix("") if source.suffix in COMPRESSED_SUFFIXES else source
    try:
        return FileFormat(name.suffix.removeprefix("."))
    except ValueError as exc:
        raise UnsupportedFormatError(
            "cannot detect the format by the file name: give --format", path=source
        ) from exc


def _rows(
    stack: ExitStack, root: Path, source: Path, form: FileFormat, first: int
) -> Iterator[MessageLine]:
    """Return the messages of ``source`` in format ``form``, from number ``first`` on.

    Raises:
        RefusedStoreError: the source is the target store.
    """
    if form is FileFormat.JSONL:
        return read_json_lines(source, first)
    if form is FileFormat.CSV:
        return read_csv(source, first)
    if form is FileFormat.STORE:
        if exists(root) and source.samefile(root):
            raise RefusedStoreError("cannot import a store into itself", path=source)
        store = stack.enter_context(open_store(source, None, None, None, check_crc_on_pull=True))
        return _rows_of_store(store, source, first)
    if form is FileFormat.ARCHIVE:
        from cqstore.cli.message_files.archive_lines import read_archive  # noqa: PLC0415 - of few imports

        return read_archive(source, first)
    from cqstore.cli.message_files.message_arrow import read_columns, require_arrow  # noqa: PLC0415 - an extra

    require_arrow()
    return read_columns(source, form, first)


def _rows_of_store(store: MessageStore, source: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of all topics except light queues, in the order of ``export``.

    Raises:
        CorruptionError: a message is damaged or missing.
    """
    reads, number = SelectedReads(store, Selection()), 0
    unseen = reads.unseen_topics()
    names = (name for name in {*store.topics(), *unseen} if not name.startswith(LMQ_PREFIX))
    for topic in sorted(names):
        for read in reads.topic(topic, with_undispatched=topic in unseen):
            number += 1
            if not reads.damaged and number >= first:
                yield MessageLine(number, to_put(read.message))
        if reads.damaged:
            raise CorruptionError(
                f"topic {topic!r} has damaged messages: to save the others, use cqstore export"
                " --format store",
                path=source,
            )
    refuse_beyond(first, number)


class _Import:
    """One import; every error that ends it reports how many messages were appended."""

    def __init__(
        self, store: MessageStore, source: Path, position: Path | None, first: int,
        digest: RowsDigest | None,
    ) -> None:  # fmt: skip
        self._store, self._source, self._position = store, source, position
        self._digest = digest
        self.count, self.next_row = 0, first

    def run(self, rows: Iterator[MessageLine], progress: Progress) -> None:
        """Append the messages of ``rows`` in order.

        Raises:
            IllegalMessageError: a row is invalid or refused; the rows before it were appended.
            StoreError: a read or write failed; the rows before it were appended.
        """
        if self._position is not None:
            self.note()  # before the first put, so that a crash leaves a position
        noted = time.monotonic()
        try:
            for row in rows:
                self._put(row)
                self.count += 1
                self.next_row = row.number + 1
                progress(self.count)
                if self._position is not None and time.monotonic() - noted >= _SECONDS:
                    self.note()
                    noted = time.monotonic()
        except StoreError as exc:
            self._end(exc)
            raise
        self.note()

    def _put(self, row: MessageLine) -> None:
        result = self._store.put_message(row.message)
        if not result.ok:
            raise IllegalLineError(f"row {row.number} was refused: {result.reason}", row.number)
        if self._position is not None and self._digest is not None:
            self._digest.add(row)

    def note(self) -> None:
        """Flush the appended messages, and record the position."""
        self._store.flush()
        if self._position is not None:
            end = self._store.max_phy_offset()
            rows = self._digest.hexdigest() if self._digest is not None else ""
            source = str(self._source.absolute())
            ImportPosition(source, self.next_row, end, rows).write(self._position)

    def _end(self, exc: StoreError) -> None:
        """Add the number of appended messages and how to continue, unless nothing could be read."""
        exc.path = exc.path or self._source
        if not isinstance(exc, UnsupportedFormatError | BeyondEndError):
            number = exc.number if isinstance(exc, IllegalLineError) else self.next_row
            exc.reason += f" ({done_before(self.count, number)})"
