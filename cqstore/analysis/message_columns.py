"""Messages as columns: the requested columns of ``cqstore export``."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from cqstore.cli.message_files.message_arrow import column_values, schema
from cqstore.cli.message_files.message_fields import read_messages, shown_host
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import SysFlag
from cqstore.store.service.reading.topic_reader import TopicMessage

_INNER_BATCH = int(SysFlag.INNER_BATCH)
BATCH_ROWS = 8192
BATCH_BYTES = 8 << 20
"""Maximum bytes of records and bodies in a batch."""


class _Row(NamedTuple):
    """A message and its queue offset."""

    queue_offset: int
    stored: StoredMessage
    values: dict[str, Any] | None = None
    """All columns of a message from a batch record; ``None`` if it has its own record."""


_MADE: dict[str, Callable[[_Row], object]] = {
    "topic": lambda row: row.stored.topic,
    "queueId": lambda row: row.stored.queue_id,
    "queueOffset": lambda row: row.queue_offset,
    "phy": lambda row: row.stored.phy_offset,
    "msgId": lambda row: row.stored.message_id,
    "storeTimestamp": lambda row: row.stored.store_timestamp,
    "bornTimestamp": lambda row: row.stored.head.born_timestamp,
    "bornHost": lambda row: shown_host(row.stored.born_host),
    "storeHost": lambda row: shown_host(row.stored.store_host),
    "flag": lambda row: row.stored.head.flag,
    "sysFlag": lambda row: row.stored.sys_flag,
    "reconsumeTimes": lambda row: row.stored.tail.reconsume_times,
    "preparedTransactionOffset": lambda row: row.stored.tail.prepared_transaction_offset,
    "properties": lambda row: [*row.stored.properties.items()],
    "body": lambda row: row.stored.body,
}


class MessageColumns:
    """Collects messages until a batch is full.

    Only requested columns are built, and only their data is read and checked: without ``body`` no
    CRC is checked and nothing is decompressed.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.schema = schema(names)
        self._names = names
        self._has_body = "body" in names
        self._has_topic = "topic" in names
        self._rows: list[_Row] = []
        self._bytes = 0

    def take(self, found: TopicMessage) -> None:
        """Take the message of a record, or all messages of a batch record.

        Raises:
            CorruptionError: a requested column cannot be read; nothing was taken.
            UnsupportedFormatError: the compression of the body is not supported.
        """
        stored = found.message
        if self._has_body:
            stored.check_body()
        if self._has_topic:
            _ = stored.topic
        if stored.sys_flag & _INNER_BATCH:
            reads = read_messages(found.queue_offset, stored, found.queue_id)
            self._rows += [_Row(each.queue_offset, stored, column_values(each)) for each in reads]
            self._bytes += stored.size + len(stored.body)
            return
        self._bytes += stored.size + (len(stored.body) if self._has_body else 0)
        self._rows.append(_Row(found.queue_offset, stored))

    @property
    def is_full(self) -> bool:
        """Return whether a batch is complete."""
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def rest(self) -> list[pa.RecordBatch]:
        """Return the remaining messages as a batch; empty if there are none."""
        rows, self._rows, self._bytes = self._rows, [], 0
        if not rows:
            return []
        arrays = [
            pa.array(_values(name, rows), self.schema.field(name).type) for name in self._names
        ]
        return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]


def _values(name: str, rows: Sequence[_Row]) -> list[object]:
    make = _MADE[name]
    return [make(row) if row.values is None else row.values[name] for row in rows]
