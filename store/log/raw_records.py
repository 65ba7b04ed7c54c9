"""RawRecords: bytes of another store's log, which have their places already, before they go in.

Source: RocketMQ ``CommitLog.appendData``, which takes any bytes; here they are checked first.
"""

from collections.abc import Iterator

from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.record.scan import RecordScan, ScanRules, TopicCache, scan_block


class RawRecords:
    """Whole records at the begin of bytes of a log, one after the other, blank ones among them.

    ``end`` and ``blank_bytes`` are known once ``blocks`` was read to its end.
    """

    def __init__(
        self, phy_offset: int, data: bytes, file_size: int, rules: ScanRules, topics: TopicCache
    ) -> None:
        """``data`` begins at ``phy_offset``, and may end in a part of one more record."""
        self.phy_offset = phy_offset
        self.end = phy_offset
        """Behind the last one; a blank one ends where the next file starts."""
        self.blank_bytes = 0
        """Of blank ones."""
        self._data = data
        self._file_size = file_size
        self._rules = rules
        self._topics = topics

    def blocks(self) -> Iterator[RecordScan]:
        """Yield the records, those of one file at a time; each is read to its end before the next.

        Raises:
            CorruptionError: no valid record where one should start, or one that no file could hold;
                the scans that are yielded raise it likewise.
        """
        self.end, self.blank_bytes = self.phy_offset, 0
        behind = self.phy_offset + len(self._data)
        while self.end < behind:
            begin, left = self.end, self._file_size - self.end % self._file_size
            at = begin - self.phy_offset
            block = self._data[at : at + left]
            scan = scan_block(block, begin, left, self._rules, self._topics)
            yield scan
            self.end = scan.behind
            rest = block[self.end - begin :]
            left -= self.end - begin
            if len(rest) < BLANK_SIZE or record_span(rest, 0, left, self.end) or len(rest) < left:
                return  # the begin of a record, of a blank one perhaps, or nothing
            self.blank_bytes += left
            self.end += left

    def parts(self) -> Iterator[memoryview]:
        """Yield the bytes of the records, those of one file at a time."""
        at, data = self.phy_offset, memoryview(self._data)
        while at < self.end:
            end = min(self.end, at + self._file_size - at % self._file_size)
            yield data[at - self.phy_offset : end - self.phy_offset]
            at = end

    def before(self, end: int) -> "RawRecords":
        """Return the records that end at or before ``end``, not yet read by ``blocks``."""
        data = self._data[: end - self.phy_offset]
        return RawRecords(self.phy_offset, data, self._file_size, self._rules, self._topics)
