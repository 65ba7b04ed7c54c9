"""LogSpan: the record that contains a phy offset, or the blank record at the end of a file."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Bytes of the log between the phy offsets ``start`` and ``end``."""

    start: int
    end: int
    record: ScannedRecord | None
    """``None``: a blank record."""

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
    """Return the record that contains ``phy_offset``; ``None`` outside the log.

    Scans from the start of the file, the only position where a record is known to begin.
    ``checked`` may refuse records that the scan accepts.

    Raises:
        CorruptionError: a record at or before it is invalid; the error has its phy offset.
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
