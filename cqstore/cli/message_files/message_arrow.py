"""Message files in columnar formats: Parquet and Arrow IPC (Feather 2).

Requires pyarrow (``pip install 'cqstore[arrow]'``), which is imported only when such a file is
written or read.
"""

from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from cqstore.cli.message_files.message_fields import COLUMNS, ReadMessage, flat_fields
from cqstore.cli.message_files.message_lines import (
    IllegalLineError,
    MessageLine,
    refuse_beyond,
    to_message,
)
from cqstore.cli.message_files.text_files import FileFormat, MessageWriter
from cqstore.store.errors import (
    CorruptionError,
    IllegalMessageError,
    StoreConfigError,
    UnsupportedFormatError,
    os_errors,
)
from cqstore.store.files import reading

_BATCH_ROWS = 1024
_BATCH_BYTES = 16 << 20
_READ_ROWS = 256
TIMES = {"storeTimestamp", "bornTimestamp"}


def require_arrow() -> Any:
    """Return the module ``pyarrow``.

    Raises:
        StoreConfigError: pyarrow is not installed.
    """
    try:
        return import_module("pyarrow")
    except ImportError as exc:
        raise StoreConfigError(
            "Parquet and Arrow need pyarrow: pip install 'cqstore[arrow]'"
        ) from exc


def schema(names: Collection[str] = tuple(COLUMNS)) -> Any:
    """Return the schema of both file formats, restricted to the columns ``names``."""
    arrow = require_arrow()
    types = {
        "string": arrow.string(), "int32": arrow.int32(), "int64": arrow.int64(),
        "time": arrow.timestamp("ms", tz="UTC"), "binary": arrow.binary(),
        "properties": arrow.map_(arrow.string(), arrow.string()),
    }  # fmt: skip
    return arrow.schema([arrow.field(name, types[COLUMNS[name]], nullable=False) for name in names])


def column_values(read: ReadMessage) -> dict[str, Any]:
    """Return the values of all columns of a message."""
    row = {
        **flat_fields(read),
        "body": bytes(read.message.body),
        "properties": [*read.message.properties.items()],
    }
    del row["bodyBase64"]
    return row


class ColumnWriter(MessageWriter):
    """Writes batches of rows into ``file``; at most one batch is in memory."""

    def __init__(self, file: BinaryIO, kind: FileFormat) -> None:
        """Begin a columnar file at the current position of ``file``."""
        self._arrow, self._schema = require_arrow(), schema()
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        if kind is FileFormat.PARQUET:
            self._writer = import_module("pyarrow.parquet").ParquetWriter(
                file, self._schema, compression="zstd", write_page_checksum=True
            )
        else:
            self._writer = self._arrow.ipc.new_file(file, self._schema)

    def write(self, read: ReadMessage) -> None:
        """Add a row; write a batch when enough rows are collected."""
        row = column_values(read)
        self._rows.append(row)
        self._bytes += len(row["body"])
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def finish(self) -> None:
        """Write the last batch and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            batch = self._arrow.RecordBatch.from_pylist(self._rows, schema=self._schema)
            self._writer.write_batch(batch)
            self._rows, self._bytes = [], 0


def read_columns(path: Path, kind: FileFormat, first: int) -> Iterator[MessageLine]:
    """Yield the messages of a Parquet or Arrow file from row ``first`` on, counted from 1.

    Raises:
        StoreConfigError: pyarrow is not installed.
        UnsupportedFormatError: the file is empty, or has other columns.
        CorruptionError: the file has another format or is damaged; rows before that were yielded.
        BeyondEndError: the rows end before ``first``.
        IllegalLineError: a row is not a valid message; rows before it were yielded.
        StoreIOError: the file cannot be read.
    """
    arrow = require_arrow()
    number = 0
    with os_errors("read messages", path):
        if not path.stat().st_size:
            raise UnsupportedFormatError(
                f"the file is empty: expected a {kind.value} file", path=path
            )
        try:
            for batch in _batches(path, kind):
                if number == 0:
                    _check_schema(path, batch.schema)
                if number + batch.num_rows < first:
                    number += batch.num_rows
                    continue
                for row in batch_rows(arrow, batch):
                    number += 1
                    if number >= first:
                        yield _message(number, row)
        except (arrow.ArrowException, OSError, UnicodeDecodeError, MemoryError) as exc:
            if (type(exc) is OSError and exc.errno is None) or not isinstance(exc, OSError):
                raise CorruptionError(
                    f"cannot read the {kind.value} file after row {number}", path=path,
                    expected=f"{kind.value} with the columns of cqstore export", got=str(exc),
                ) from exc  # fmt: skip
            raise
    refuse_beyond(first, number)


def _batches(path: Path, kind: FileFormat) -> Iterator[Any]:
    """Yield the batches of an Arrow or Parquet file after checking its schema."""
    arrow = require_arrow()
    if kind is FileFormat.PARQUET:
        parquet = import_module("pyarrow.parquet")
        with (  # opened here, because Arrow does not accept non-UTF-8 paths
            reading(path) as source,
            parquet.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            _check_schema(path, file.schema_arrow)
            yield from file.iter_batches(batch_size=_READ_ROWS)
        return
    with reading(path) as source, arrow.ipc.open_file(source) as file:
        _check_schema(path, file.schema)
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            batch.validate(full=True)
            yield batch


def _check_schema(path: Path, found: Any) -> None:
    """Refuse columns that are unknown or have another type.

    Raises:
        UnsupportedFormatError: a column is unknown or has another type; the error names the first.
    """
    wanted = schema()
    for field in found:
        if field.name not in wanted.names:
            raise UnsupportedFormatError(
                f"unknown column {field.name!r:.60}: expected {', '.join(wanted.names)}",
                path=path,
            )
        if not _is_like(field.type, wanted.field(field.name).type):
            raise UnsupportedFormatError(
                f"column {field.name} has the wrong type: expected"
                f" {wanted.field(field.name).type}, found {field.type}",
                path=path,
            )
    if "topic" not in found.names:
        raise UnsupportedFormatError(
            f"column topic is missing: found {', '.join(found.names)[:200]}", path=path
        )


def _is_like(found: Any, wanted: Any) -> bool:
    """Return whether a column has the wanted type, ignoring the names of nested fields."""
    types = require_arrow().types
    if types.is_map(wanted):
        return bool(
            types.is_map(found)
            and types.is_string(found.key_type)
            and types.is_string(found.item_type)
        )
    return bool(found.equals(wanted))


def batch_rows(arrow: Any, batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows; times are integers in the column's unit, so any time is possible."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.cast(arrow.int64()) if name in TIMES else column
        columns.append(values.to_pylist())
    for row in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def _message(number: int, row: dict[str, object]) -> MessageLine:
    """Return a row of an Arrow or Parquet file as a message.

    Raises:
        IllegalLineError: the row is not a valid message.
    """
    try:
        pairs = row.get("properties") or []
        assert isinstance(pairs, list)
        properties = dict(pairs)
        if len(properties) != len(pairs):
            raise IllegalMessageError("a property is given twice")  # noqa: TRY301 - handled below
        return MessageLine(number, to_message({**row, "properties": properties}))
    except IllegalMessageError as exc:
        raise IllegalLineError(f"row {number}: {exc.reason}", number) from exc
