"""RawRecords: bytes of another store's log, which have their places already, before they go in.

Source: RocketMQ ``CommitLog.appendData``, which takes any bytes; here they are checked first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from store.record.decoder import record_span
from store.record.record_layout import BLANK_SIZE
from store.record.scan import ScannedRecord, ScanRules, TopicCache, scan_block


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Whole records of a log, one after the other, blank ones among them."""

    phy_offset: int
    """Where the first one goes."""
    data: bytes
    """May end in a part of one more record, which is not taken."""
    ends: Sequence[int]
    """The phy offset behind each; a blank one ends where the next file starts."""
    records: Sequence[ScannedRecord]
    """Those that are not blank."""

    @property
    def end(self) -> int:
        """Return the phy offset behind the last one."""
        return self.ends[-1] if self.ends else self.phy_offset

    def before(self, end: int) -> Iterator[memoryview]:
        """Yield the bytes of each one that ends at or before ``end``."""
        start, data = self.phy_offset, memoryview(self.data)
        for behind in self.ends:
            if behind > end:
                return
            yield data[start - self.phy_offset : behind - self.phy_offset]
            start = behind


def check_raw(
    phy_offset: int, data: bytes, file_size: int, rules: ScanRules, topics: TopicCache
) -> RawRecords:
    """Return the whole records at the begin of ``data``, checked.

    Raises:
        CorruptionError: no valid record where one should start, or one that no file could hold.
    """
    ends: list[int] = []
    records: list[ScannedRecord] = []
    at, end = phy_offset, phy_offset + len(data)
    while at < end:
        start, left = at, file_size - at % file_size
        block = data[at - phy_offset : at - phy_offset + left]
        for record in scan_block(block, at, left, rules, topics):
            at = record.phy_offset + record.size
            records.append(record)
            ends.append(at)
        left -= at - start
        rest = block[at - start :]
        if len(rest) < BLANK_SIZE or record_span(rest, 0, left, at) or len(rest) < left:
            break  # the begin of a record, of a blank one perhaps, or nothing
        at += left
        ends.append(at)
    return RawRecords(phy_offset, data, ends, records)
