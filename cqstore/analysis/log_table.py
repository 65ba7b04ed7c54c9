"""The commit log as a table: a row a record, in log order within a task.

A task is a run of whole files: the start of a file is the start of a record.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from cqstore.analysis.columns import TableColumn
from cqstore.analysis.filters import INT64_MAX, INT64_MIN, RowFilter
from cqstore.analysis.log_rows import LogRows
from cqstore.analysis.options import SourceOptions
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.opening.components import components_of

CHUNK_BYTES = 16 << 20
"""Log bytes whose records are columns at once."""
CLOCK_SLACK_MS = 3_600_000
"""By how much a clock may have gone back before files are left out wrongly."""


class LogPart(NamedTuple):
    """What one task scans: phy offsets, bytes."""

    start: int
    end: int


def plan_log(options: SourceOptions, rows: RowFilter) -> list[LogPart]:
    """Return the tasks that together hold every row asked for.

    Files are left out by phy offset, and by the store times of the first records of it and of the
    file behind it: times grow within a log, a clock put back by up to an hour apart.

    Raises:
        StoreError: there is no store, or it cannot be read.
    """
    with options.open_store() as store:
        log = components_of(store).log
        end = log.max_phy_offset()
        starts = [f.file_from_offset for f in log.files.files() if f.file_from_offset < end]
        spans = [LogPart(start, min(start + log.files.file_size, end)) for start in starts]
        asked = rows.span("phy_offset")
        wanted = [span.end > asked.low and span.start <= asked.high for span in spans]
        times = rows.span("store_timestamp")
        if times.low > INT64_MIN or times.high < INT64_MAX or times.among is not None:
            in_time = _in_time(log, spans, rows)
            wanted = [one and two for one, two in zip(wanted, in_time, strict=True)]
    return joined(spans, wanted, options.partition_bytes)


def read_log(
    options: SourceOptions, columns: Sequence[TableColumn], rows: RowFilter, part: LogPart
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``part`` that are asked for, as ``columns``.

    Raises:
        CorruptionError: no valid record where one should be.
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


def _in_time(log: CommitLog, spans: Sequence[LogPart], rows: RowFilter) -> list[bool]:
    """Return for each file whether it may hold records of the store times asked for."""
    asked = rows.span("store_timestamp")
    low, high = asked.low, asked.high
    if asked.among is not None:
        low = max(low, min(asked.among, default=INT64_MAX))
        high = min(high, max(asked.among, default=INT64_MIN))
    first: list[int] = []
    for span in spans:
        file = log.files.find(span.start)
        record = None if file is None else log.first_record(file)
        if record is None or (first and record.store_timestamp + CLOCK_SLACK_MS < first[-1]):
            return [True] * len(spans)  # times that cannot be relied on
        first.append(record.store_timestamp)
    last = [*first[1:], INT64_MAX]
    return [
        newest + CLOCK_SLACK_MS >= low and oldest - CLOCK_SLACK_MS <= high
        for oldest, newest in zip(first, last, strict=True)
    ]


def joined(spans: Sequence[LogPart], wanted: Sequence[bool], partition_bytes: int) -> list[LogPart]:
    """Return the wanted files as tasks: neighbours together up to ``partition_bytes``."""
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
