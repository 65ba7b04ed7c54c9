"""LogSpan: the record, or the blank at the end of a file, in which a phy offset lies."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Bytes of the log from ``start`` to ``end``, phy offsets."""

    start: int
    end: int
    record: ScannedRecord | None
    """``None``: a blank."""

    def __str__(self) -> str:
        span = f"from {self.start} to {self.end}"
        if (record := self.record) is None:
            return f"the blank record {span}"
        place = f"offset {record.queue_offset} of queue {record.queue_id} of {record.topic!r}"
        return f"the record {span} ({place})"


def _as_they_are(blocks: Iterable[RecordScan]) -> Iterator[RecordScan]:
    return iter(blocks)


def span_at(
    log: CommitLog,
    phy_offset: int,
    rules: ScanRules,
    checked: Callable[[Iterable[RecordScan]], Iterator[RecordScan]] = _as_they_are,
) -> LogSpan | None:
    """Return what ``phy_offset`` lies in; ``None`` where the log does not reach.

    Scans from the start of the file, the only place where a record is known to begin. ``checked``
    may refuse more than the scan does.

    Raises:
        CorruptionError: no valid record at a place at or before it, which the error names.
    """
    file = log.files.find(phy_offset)
    if file is None or phy_offset >= log.max_phy_offset():
        return None
    blanks: list[tuple[int, int]] = []
    records: deque[ScannedRecord] = deque(maxlen=1)
    blocks = log.scan_blocks(file.file_from_offset, phy_offset + 1, rules, blanks)
    for block in checked(blocks):
        records.extend(block)
    if blanks:
        at, size = blanks[-1]
        return LogSpan(at, at + size, None)
    if not records:
        return None
    record = records[0]
    return LogSpan(record.phy_offset, record.phy_offset + record.size, record)
