"""Records that Python encodes, on their way into a log: the core writes what they are."""

from collections.abc import Sequence

from cqstore.store.log.commit_log import Appended, CommitLog, now_ms
from cqstore.store.log.log_map import LogMap
from cqstore.store.record.record_layout import BLANK_SIZE
from tests.kit.oracle.encoder import EncodedRecord, assemble, with_property_crc

Target = LogMap | bytearray


def fitting(log: CommitLog, records: Sequence[EncodedRecord]) -> int:
    """Return how many of ``records`` the current file of the log has room for."""
    file = log.current
    room = log.files.file_size - file.wrote_position - BLANK_SIZE if file is not None else 0
    for count, record in enumerate(records):
        if record.size > room:
            return count
        room -= record.size
    return len(records)


def write(
    log: CommitLog,
    target: Target,
    records: Sequence[EncodedRecord],
    queue_offsets: Sequence[int],
    *,
    is_sealed: bool,
) -> list[Appended]:
    """Write ``records``, which fit the current file, and move the log's end; return their places.

    ``is_sealed``: each ends with room for the checksum of all of it.
    """
    file = log.current
    assert file is not None
    start = file.wrote_position
    phy_offset = file.file_from_offset + start
    timestamp, data = now_ms(), bytearray()
    places: list[Appended] = []
    for record, queue_offset in zip(records, queue_offsets, strict=True):
        rest = assemble(record, queue_offset, phy_offset, timestamp)
        data += record.start + (with_property_crc(record.start, rest) if is_sealed else rest)
        places.append(Appended(phy_offset, record.size, timestamp))
        phy_offset += record.size
    target[start : start + len(data)] = bytes(data)
    file.check_written(target)
    file.wrote_position = start + len(data)
    log.end = phy_offset
    log.appended_records += len(places)
    return places


class LogRecords:
    """Records with their queue offsets, see ``EncodedRecords``; the results are their places."""

    def __init__(self, log: CommitLog, records: Sequence[EncodedRecord], first: int) -> None:
        self._log = log
        self._left = [*records]
        self._next = first

    @property
    def next_bytes(self) -> int:
        return self._left[0].size if self._left else 0

    @property
    def total_bytes(self) -> int:
        return sum(record.size for record in self._left)

    def append(self, target: Target, results: list[Appended], /) -> None:
        count = fitting(self._log, self._left)
        offsets = range(self._next, self._next + count)
        results += write(self._log, target, self._left[:count], offsets, is_sealed=False)
        self._next += count
        del self._left[:count]


def append_list(
    log: CommitLog, records: Sequence[EncodedRecord], first: int, *, whole: bool = False
) -> list[Appended]:
    """Append ``records`` to the log by itself, with queue offsets from ``first`` on."""
    places: list[Appended] = []
    log.append_encoded(LogRecords(log, records, first), places, whole=whole)
    return places


def append(log: CommitLog, record: EncodedRecord, queue_offset: int) -> Appended:
    """Append one record to the log by itself."""
    (place,) = append_list(log, [record], queue_offset)
    return place
