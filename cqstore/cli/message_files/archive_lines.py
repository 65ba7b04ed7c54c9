"""The messages of an archive, in the order in which ``cqstore import`` appends them.

Ordered by batch, topic, source and phy offset: each queue keeps the order of its log. A new batch
is read after all others, so the number of a row does not change. Needs pyarrow.
"""

import heapq
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.cli.message_files.archive_manifest import (
    CATALOG,
    ArchivedFile,
    batch_folder,
    batch_numbers,
    read_manifest,
)
from cqstore.cli.message_files.message_arrow import TIMES, batch_rows, require_arrow
from cqstore.cli.message_files.message_fields import COLUMNS
from cqstore.cli.message_files.message_lines import (
    IllegalLineError,
    MessageLine,
    refuse_beyond,
    to_message,
)
from cqstore.store.errors import CorruptionError, IllegalMessageError, os_errors
from cqstore.store.files import check_regular
from cqstore.store.path_kind import is_file

_READ_ROWS = 256
_PLACE = ("source", "phy", "queueOffset")
_US = 1000
Row = dict[str, Any]


class _Found(NamedTuple):
    """A row, ordered by its position, which is unique within a batch."""

    source: str
    phy: int
    queue_offset: int
    row: Row


def read_archive(folder: Path, first: int) -> Iterator[MessageLine]:
    """Yield the messages of the archive in ``folder`` from row ``first`` on, counted from 1.

    Raises:
        StoreConfigError: pyarrow is not installed.
        CorruptionError: a file or a manifest is missing or damaged; rows before it were yielded.
        IllegalLineError: a row is not a valid message; rows before it were yielded.
        BeyondEndError: the rows end before ``first``.
        StoreIOError: a file cannot be read.
    """
    require_arrow()
    number = 0
    for place, given in _batches_of(folder):
        files = sorted(given, key=lambda each: (each.topic, each.path))
        for _, of_topic in groupby(files, key=lambda each: each.topic):
            some = list(of_topic)
            count = sum(each.messages for each in some)
            if number + count < first:
                number += count
                continue
            for found in _merged(place, some):
                number += 1
                if number >= first:
                    yield _line(number, found.row)
    refuse_beyond(first, number)


def _batches_of(folder: Path) -> Iterator[tuple[Path, Sequence[ArchivedFile]]]:
    """Yield the folder and the files of each batch."""
    if is_file(folder / CATALOG):
        from cqstore.cli.message_files.archive_iceberg import table_batches  # noqa: PLC0415 - an extra

        yield from table_batches(folder)
        return
    for number in batch_numbers(folder):
        place = batch_folder(folder, number)
        yield place, read_manifest(place).files


def _merged(place: Path, files: Sequence[ArchivedFile]) -> Iterator[_Found]:
    """Yield the rows of a topic's files, merged in order; each file is in that order."""
    return heapq.merge(*(_rows(place / each.path, each) for each in files), key=lambda row: row[:3])


def _rows(path: Path, file: ArchivedFile) -> Iterator[_Found]:
    """Yield the messages of a Parquet file of an archive, checked against the manifest entry.

    Raises:
        CorruptionError: the file differs from the manifest, or from the files of ``cqstore
            archive``.
    """
    arrow, count = require_arrow(), 0
    with os_errors("read the archive file", path):
        check_regular(path)
        _check(path, file.size, path.stat().st_size, "bytes")
        try:
            for batch in _batches(path):
                for row in batch_rows(arrow, batch):
                    count += 1
                    yield _Found(row["source"], row["phy"], row["queueOffset"], row)
        except (arrow.ArrowException, OSError, UnicodeDecodeError, MemoryError, KeyError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise
            raise CorruptionError(
                f"cannot read the archive file after row {count}", path=path,
                expected="Parquet written by cqstore archive", got=str(exc),
            ) from exc  # fmt: skip
    _check(path, file.messages, count, "rows")


def _check(path: Path, expected: int, got: int, what: str) -> None:
    if expected != got:
        raise CorruptionError(
            "the archive file has changed since it was written", path=path,
            expected=f"{expected} {what}", got=f"{got} {what}",
        )  # fmt: skip


def _batches(path: Path) -> Iterator[Any]:
    parquet = import_module("pyarrow.parquet")
    columns = [*_PLACE, *(name for name in COLUMNS if name not in _PLACE)]
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        yield from file.iter_batches(batch_size=_READ_ROWS, columns=columns)


def _line(number: int, row: Row) -> MessageLine:
    """Return a row of an archive as a message to append.

    Raises:
        IllegalLineError: the row is not a valid message.
    """
    fields = {name: value for name, value in row.items() if name != "source"}
    fields["properties"] = dict(row["properties"])
    for name in TIMES:
        fields[name] = (row[name] or 0) // _US
    try:
        return MessageLine(number, to_message(fields))
    except IllegalMessageError as exc:
        raise IllegalLineError(f"row {number}: {exc.reason}", number) from exc
