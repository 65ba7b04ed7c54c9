"""The columns of the tables, with types and meanings."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cqstore.analysis.options import SourceOptions
from cqstore.store.errors import StoreConfigError
from cqstore.store.log.record_times import NO_TIME

BATCH_ROWS = 65_536
"""Approximate number of rows per Arrow batch."""
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: the range of a time column."""
NULL_TIMESTAMP = NO_TIME
"""Store time of a unit whose record is not in the log; null in the table."""
FIRST_STAMP = NULL_TIMESTAMP + 1
"""The first store time, ms, that is not null."""

ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    type: str
    """Spark's name of the type; ``ARROW`` maps it to Arrow's type."""
    doc: str


_QUEUE = (
    TableColumn("topic", "string", "topic"),
    TableColumn("queue_id", "int", "queue of the topic"),
    TableColumn("queue_offset", "bigint", "position in the queue, in units"),
    TableColumn("phy_offset", "bigint", "start of the record, in bytes from the start of the log"),
    TableColumn("size", "int", "size of the whole record, in bytes"),
)
_STORED = (
    TableColumn("store_timestamp", "bigint", "store time, in ms since the epoch"),
    TableColumn(
        "store_time", "timestamp", "store time as a timestamp; null outside the years 1 to 9999"
    ),
)
_BODY = TableColumn("body", "binary", "the body, decompressed")
_LOG = (
    *_QUEUE,
    *_STORED,
    TableColumn(
        "born_timestamp", "bigint", "time when the producer created it, in ms since the epoch"
    ),
    TableColumn("born_time", "timestamp", "that time as a timestamp"),
    TableColumn("tags", "string", "property TAGS"),
    TableColumn("keys", "string", "property KEYS, separated by spaces"),
    TableColumn("uniq_key", "string", "property UNIQ_KEY, the producer's message id"),
    TableColumn("flag", "int", "flag of the application"),
    TableColumn("sys_flag", "int", "compression, transaction, host and batch bits"),
    TableColumn("born_host", "string", "the producer's address and port"),
    TableColumn("store_host", "string", "the broker's address and port"),
    TableColumn("reconsume_times", "int", "number of redeliveries"),
    TableColumn("prepared_transaction_offset", "bigint", "phy offset of the half message"),
    TableColumn("body_crc", "int", "CRC-32 of the stored body, sign bit cleared"),
    TableColumn("body_length", "int", "size of the stored body, in bytes"),
    TableColumn("properties", "map<string,string>", "all properties"),
)
EVERY_LOG_COLUMN = (*_LOG, _BODY)
_UNITS = (
    *_QUEUE,
    TableColumn(
        "tags_code", "bigint", "hash of the tag, or delivery time in ms; null if it is missing"
    ),
    TableColumn("batch_num", "int", "messages in the record: 1 except in batch queues"),
)
UNIT_TABLE = (*_UNITS, *_STORED)
"""All columns of the table of units."""


def log_columns(options: SourceOptions) -> Sequence[TableColumn]:
    """Return the columns of the log, one row per record."""
    return EVERY_LOG_COLUMN if options.body else _LOG


def unit_columns(options: SourceOptions) -> Sequence[TableColumn]:
    """Return the columns of the queues, one row per unit."""
    return UNIT_TABLE if options.store_timestamp else _UNITS


def ddl(columns: Sequence[TableColumn]) -> str:
    """Return ``columns`` as Spark's schema text."""
    return ", ".join(f"{column.name} {column.type}" for column in columns)


def chosen(
    columns: Sequence[TableColumn], requested: Sequence[tuple[str, str]]
) -> tuple[TableColumn, ...]:
    """Return the requested ``columns``, in the order of ``requested``, which has names and types.

    Raises:
        StoreConfigError: a column does not exist, or has another type.
    """
    known = {column.name: column for column in columns}
    for name, kind in requested:
        if name not in known:
            raise StoreConfigError(f"no column {name!r}; columns: {', '.join(known)}")
        if known[name].type != kind:
            raise StoreConfigError(
                f"wrong type of column {name!r}: expected {known[name].type}, found {kind}"
            )
    return tuple(known[name] for name, _ in requested)


def time_array(stamps: NDArray[np.int64]) -> pa.Array:
    """Return times in ms as a time column."""
    outside = (stamps < EARLIEST_MS) | (stamps > LATEST_MS)
    return pa.array(
        np.where(outside, 0, stamps) * 1000, ARROW["timestamp"],
        mask=outside if outside.any() else None,
    )  # fmt: skip
