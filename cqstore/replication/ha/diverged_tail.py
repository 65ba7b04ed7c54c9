"""The part of a log after the place where two logs diverge: its first record and its totals."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.progress import Progress, noop
from cqstore.store.record.scan import ScannedRecord
from cqstore.store.service.recovering.find_log_end import valid_record_behind

_SHOWN_BYTES = 32
_TICKS = 1 << 14
MAX_TOPICS = 1000
"""Maximum number of topics of a tail that are listed by name."""


@dataclass(slots=True)
class OwnRecords:
    """The records from one place to the end of a log."""

    begin: int
    end: int
    records: int = 0
    first_stored: int | None = None
    """Earliest store time, in ms."""
    last_stored: int | None = None
    topics: Counter[str] = field(default_factory=Counter)
    unreadable: CorruptionError | None = None
    """The first damage in the range; records after it that can be read are counted."""

    def as_json(self) -> dict[str, object]:
        """Return the totals under the report's names, with the topics that have most records."""
        return {
            "from": self.begin, "to": self.end, "bytes": self.end - self.begin,
            "records": self.records, "firstStored": self.first_stored,
            "lastStored": self.last_stored, "topics": dict(self.topics.most_common(MAX_TOPICS)),
            "otherTopics": max(len(self.topics) - MAX_TOPICS, 0),
            "damage": None if self.unreadable is None else str(self.unreadable),
        }  # fmt: skip


def tail_of(log: CommitLog, begin: int, progress: Progress = noop) -> OwnRecords:
    """Count the records of ``log`` from ``begin`` on, which is a record's start or the log's end.

    ``progress`` is called with phy offsets.

    Raises:
        StoreIOError: a file cannot be read.
    """
    tail = OwnRecords(begin, max(log.max_phy_offset(), begin))
    for record in _readable(log, tail):
        tail.records += 1
        tail.topics[record.topic] += 1
        stored = record.store_timestamp
        tail.first_stored = min(stored, stored if tail.first_stored is None else tail.first_stored)
        tail.last_stored = max(stored, stored if tail.last_stored is None else tail.last_stored)
        if tail.records % _TICKS == 0:
            progress(record.phy_offset)
    return tail


def _readable(log: CommitLog, tail: OwnRecords) -> Iterator[ScannedRecord]:
    """Yield the records of the tail; continues after damage, and stores the first damage."""
    at: int | None = tail.begin
    while at is not None and at < tail.end:
        try:
            yield from log.scan(at)
        except CorruptionError as exc:
            tail.unreadable = tail.unreadable or exc
            at = valid_record_behind(log, at if exc.phy_offset is None else exc.phy_offset)
        else:
            return


def place_of(log: CommitLog, phy_offset: int) -> dict[str, object]:
    """Return what ``log`` has at ``phy_offset``: a record, a blank one, its end, or other bytes."""
    size = log.files.file_size - phy_offset % log.files.file_size
    if not max(log.min_phy_offset(), 0) <= phy_offset < log.max_phy_offset():
        return {"what": "end of the log"}
    shown = log.files.read(phy_offset, min(_SHOWN_BYTES, size, log.max_phy_offset() - phy_offset))
    raw: dict[str, object] = {"bytes": shown.hex()}
    blanks: list[tuple[int, int]] = []
    try:
        record = next(log.scan(phy_offset, phy_offset + 1, blanks=blanks), None)
    except CorruptionError as exc:
        return {"what": "not a record", "why": str(exc), **raw}
    if record is None:
        return {"what": "a blank record", "size": size, **raw}
    return {
        "what": "a record", "topic": record.topic, "queueId": record.queue_id,
        "queueOffset": record.queue_offset, "storeTimestamp": record.store_timestamp,
        "size": record.size, **raw,
    }  # fmt: skip
