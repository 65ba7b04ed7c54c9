"""Records of a log as rows of the archive, with the fields that ``cqstore export`` writes.

Rows are the messages of the queues: without prepared and rolled back transactions, records that
replace a damaged record, and records of topics deleted since. A batch record is one row per
message.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cqstore.analysis.archive.log_ranges import LogRange
from cqstore.analysis.columns import ARROW, EARLIEST_MS, EVERY_LOG_COLUMN, LATEST_MS, TableColumn
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.log_rows import LogRows
from cqstore.analysis.log_table import CHUNK_BYTES, LogPart
from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.message_files.message_arrow import column_values
from cqstore.cli.message_files.message_fields import read_messages
from cqstore.store.errors import CorruptionError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.paths import StorePaths
from cqstore.store.record.decoder import StoredMessage, record_span
from cqstore.store.record.message import Host, MessageProperty, SysFlag, is_queued
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.record.record_layout import BLANK_SIZE, body_position
from cqstore.store.record.scan import ScannedRecord, ScanRules

DAY_MS = 86_400_000
_PASSED_OVER, _INNER_BATCH = int(SysFlag.PASSED_OVER), int(SysFlag.INNER_BATCH)
_COMPRESSED = int(SysFlag.COMPRESSED)
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_RULES = ScanRules(check_crc=True)
_OF_LOG = {
    "topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset", "phy": "phy_offset",
    "storeTimestamp": "store_timestamp", "bornTimestamp": "born_timestamp", "flag": "flag",
    "sysFlag": "sys_flag", "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset", "tags": "tags", "keys": "keys",
    "uniqKey": "uniq_key", "properties": "properties", "body": "body",
}  # fmt: skip
"""Columns of the archive that are columns of the log, and their names there."""
_TYPES = {
    "source": "int", "day": "string", "topic": "string", "queueId": "int", "queueOffset": "bigint",
    "phy": "bigint", "msgId": "string", "storeTimestamp": "bigint", "bornTimestamp": "bigint",
    "bornHost": "string", "storeHost": "string", "flag": "int", "sysFlag": "int",
    "reconsumeTimes": "int", "preparedTransactionOffset": "bigint", "tags": "string",
    "keys": "string", "uniqKey": "string", "properties": "map<string,string>", "body": "binary",
}  # fmt: skip
"""Columns and Spark's names of their types."""
ROWS = pa.schema([(name, ARROW[kind]) for name, kind in _TYPES.items()])
"""Schema of rows before they are written: times in ms, sources by number, days as text."""
ROWS_DDL = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
"""``ROWS`` as Spark's schema text."""
DAMAGE = ""
"""Topic of a row that is not a message: its body describes skipped damage."""


def read_rows(span: LogRange, number: int, part: LogPart) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``part`` as ``ROWS``; ``number`` is the number of the source.

    A damaged record with records after it is skipped, and reported in a row of topic ``DAMAGE``.

    Raises:
        CorruptionError: a record is damaged, and the next record cannot be found.
        StoreError: the log cannot be read.
    """
    deleted = DeletedTopics(StorePaths(span.options.path).deleted_topics)
    deleted.load()
    faults: list[str] = []
    with closing(span.options.open_log()) as log:
        for records in _chunks(log, part, faults):
            taken = [
                each for each in records
                if is_queued(each.sys_flag) and not each.sys_flag & _PASSED_OVER
                and not deleted.has_record(each.topic, each.phy_offset)
            ]  # fmt: skip
            single = [each for each in taken if not each.sys_flag & _INNER_BATCH]
            if single:
                yield ArchiveRows(log, single, number, faults).rows()
            if len(single) < len(taken):
                batches = [each for each in taken if each.sys_flag & _INNER_BATCH]
                yield _rows_of_batches(log, batches, number, faults)
    if faults:
        yield _rows([_fault_row(number, each) for each in faults])


class ArchiveRows(LogRows):
    """Records of one log file, without batches, as rows."""

    def __init__(
        self, log: CommitLog, records: Sequence[ScannedRecord], number: int, faults: list[str]
    ) -> None:
        super().__init__(log, records, RowFilter())
        self._number, self._faults = number, faults

    def rows(self) -> pa.RecordBatch:
        """Return the rows; a body that cannot be decompressed is reported as a fault instead."""
        found = self.batch(_log_columns())
        columns = dict(zip(_OF_LOG, found.columns, strict=True))
        stored, hosts = self._tail["store_timestamp"], self._tail["store_host"]
        places = zip(hosts, self._phy.tolist(), strict=True)
        columns |= {
            "source": pa.array(np.full(self.count, self._number, np.int32)),
            "day": pa.array(days(stored), pa.string()),
            "msgId": pa.array([encode_message_id(_host(one), at) for one, at in places]),
            "bornHost": pa.array(list(map(_host_text, self._tail["born_host"])), pa.string()),
            "storeHost": pa.array(list(map(_host_text, hosts)), pa.string()),
        }  # fmt: skip
        batch = pa.RecordBatch.from_arrays([columns[name] for name in ROWS.names], schema=ROWS)
        return batch.filter(pc.is_valid(batch["body"])) if batch["body"].null_count else batch

    def _bodies(self) -> pa.Array:
        """Return the bodies, with one read of the file: the records are close to each other."""
        flags = self._head["sys_flag"].astype(np.int64)
        starts = self._phy - self._phy[0]
        begins, sizes = starts.copy(), self._tail["body_size"]
        for bits in sorted({*(flags & _HOST_BITS).tolist()}):
            begins[(flags & _HOST_BITS) == bits] += body_position(bits)
        last = int(self._head["total_size"][-1])
        data = self._file.read(int(self._phy[0]) - self._start, int(starts[-1]) + last)
        bodies: list[bytes | None] = [
            data[at : at + size]
            for at, size in zip(begins.tolist(), sizes.tolist(), strict=True)
        ]  # fmt: skip
        for row in np.flatnonzero(flags & _COMPRESSED).tolist():
            record = data[starts[row] : starts[row] + self._head["total_size"][row]]
            bodies[row] = self._decompressed(record, int(self._phy[row]))
        return pa.array(bodies, pa.binary())

    def _decompressed(self, record: bytes, phy_offset: int) -> bytes | None:
        try:
            return bytes(StoredMessage(record, phy_offset).body)
        except CorruptionError as exc:
            self._faults.append(str(exc))
            return None


def days(stamps: NDArray[np.int64]) -> list[str]:
    """Return the UTC days of times in ms, clamped to the years 1 to 9999."""
    within = np.clip(stamps, EARLIEST_MS, LATEST_MS) // DAY_MS
    return list(np.datetime_as_string(within.astype("datetime64[D]")).tolist())


def _log_columns() -> list[TableColumn]:
    known = {column.name: column for column in EVERY_LOG_COLUMN}
    return [known[name] for name in _OF_LOG.values()]


@lru_cache(maxsize=4096)
def _host(wire: bytes) -> Host:
    return Host(wire)


@lru_cache(maxsize=4096)
def _host_text(wire: bytes) -> str:
    return host_text(Host(wire))


# ---- records with several messages


def _rows_of_batches(
    log: CommitLog, records: Sequence[ScannedRecord], number: int, faults: list[str]
) -> pa.RecordBatch:
    """Return the rows of records with several messages; damage is added to ``faults``."""
    rows: list[dict[str, object]] = []
    for record in records:
        try:
            for read in read_messages(record.queue_offset, log.message(record.phy_offset)):
                properties = read.message.properties
                row = {
                    **column_values(read), "source": number,
                    "day": days(np.array([record.store_timestamp]))[0],
                    "tags": properties.get(MessageProperty.TAGS),
                    "keys": properties.get(MessageProperty.KEYS),
                    "uniqKey": properties.get(MessageProperty.UNIQ_KEY),
                }  # fmt: skip
                rows.append(row)
        except CorruptionError as exc:
            faults.append(str(exc))
    return _rows(rows)


def _rows(rows: Sequence[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ROWS)


def _fault_row(number: int, sentence: str) -> dict[str, object]:
    row: dict[str, object] = {
        name: 0 if kind in {"int", "bigint"} else "" for name, kind in _TYPES.items()
    }
    return row | {"source": number, "topic": DAMAGE, "properties": [], "body": sentence.encode()}


# ---- the walk over the log


def _chunks(log: CommitLog, part: LogPart, faults: list[str]) -> Iterator[list[ScannedRecord]]:
    """Yield the records of ``part`` in lists, each out of one file."""
    at, size = part.start, log.files.file_size
    while at < part.end:
        file_end = min(at - at % size + size, part.end)
        records: list[ScannedRecord] = []
        try:
            for record in log.scan(at, min(at + CHUNK_BYTES, file_end), _RULES):
                records.append(record)  # noqa: PERF402 - what came before a fault is kept
            at = records[-1].phy_offset + records[-1].size if records else file_end
        except CorruptionError as exc:
            at = _behind(log, exc, at - at % size + size, part.end)
            faults.append(str(exc))
        if records:
            yield records


def _behind(log: CommitLog, fault: CorruptionError, file_end: int, end: int) -> int:
    """Return the offset after a damaged record, if its size leads to the head of a record.

    Raises:
        CorruptionError: ``fault``, if the size does not lead to a record.
    """
    at = fault.phy_offset
    if at is None:
        raise fault
    try:
        size = record_span(bytes(log.files.select(at, BLANK_SIZE)), 0, file_end - at, at)
        behind = at + size
        if behind < end:
            record_span(bytes(log.files.select(behind, BLANK_SIZE)), 0, file_end - behind, behind)
    except CorruptionError:
        raise fault from None
    if not size or behind > end:
        raise fault
    return behind
