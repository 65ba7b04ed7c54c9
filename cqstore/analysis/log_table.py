"""The commit log as a table: one row per record, in log order within a task.

A task is a run of whole files: the start of a file is the start of a record.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from cqstore.analysis.columns import TableColumn
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.log_rows import LogRows
from cqstore.analysis.options import SourceOptions
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.opening.components import components_of

CHUNK_BYTES = 16 << 20
"""Maximum log bytes whose records are converted at once."""


class LogPart(NamedTuple):
    """Range of phy offsets that one task scans."""

    start: int
    end: int


def plan_log(options: SourceOptions, rows: RowFilter) -> list[LogPart]:
    """Return the tasks that together contain every requested row.

    Files are skipped by phy offset, never by store time: if the clock was set back, a file can
    contain any time.

    Raises:
        StoreError: there is no store, or it cannot be read.
    """
    if rows.span("store_timestamp").is_empty:
        return []
    with options.open_store() as store:
        log = components_of(store).log
        end = log.max_phy_offset()
        starts = [f.file_from_offset for f in log.files.files() if f.file_from_offset < end]
        spans = [LogPart(start, min(start + log.files.file_size, end)) for start in starts]
        requested = rows.span("phy_offset")
        wanted = [span.end > requested.low and span.start <= requested.high for span in spans]
    return joined(spans, wanted, options.partition_bytes)


def read_log(
    options: SourceOptions, columns: Sequence[TableColumn], rows: RowFilter, part: LogPart
) -> Iterator[pa.RecordBatch]:
    """Yield the requested rows of ``part``, as ``columns``.

    Raises:
        CorruptionError: a record is damaged.
        StoreError: the log cannot be read.
    """
    with closing(options.open_log()) as log:
        for records in _chunks(log, part, ScanRules(check_crc=options.crc)):
            found = LogRows(log, records, rows)
            if found.count:
                yield found.batch(columns)


def _chunks(log: CommitLog, part: LogPart, rules: ScanRules) -> Iterator[list[ScannedRecord]]:
    """Yield the records of ``part`` in lists, each out of one file."""
    at, size = part.start, log.files.file_size
    while at < part.end:
        file_end = at - at % size + size
        records = list(log.scan(at, min(at + CHUNK_BYTES, file_end, part.end), rules))
        if not records:  # a blank record: nothing follows in this file
            at = file_end
            continue
        yield records
        at = records[-1].phy_offset + records[-1].size


def joined(spans: Sequence[LogPart], wanted: Sequence[bool], partition_bytes: int) -> list[LogPart]:
    """Return the requested files as tasks; adjacent files are joined up to ``partition_bytes``."""
    parts: list[LogPart] = []
    for span, take in zip(spans, wanted, strict=True):
        if not take:
            continue
        last = parts[-1] if parts else None
        if last and last.end == span.start and span.end - last.start <= partition_bytes:
            parts[-1] = LogPart(last.start, span.end)
        else:
            parts.append(span)
    return parts
