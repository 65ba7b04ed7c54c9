"""RawRecords: bytes of another store's log, with their phy offsets, before they are appended.

Source: RocketMQ ``CommitLog.appendData``, which accepts any bytes; here they are checked first.
"""

from collections.abc import Iterator

from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.record.scan import RecordScan, ScanRules, TopicCache, scan_block


class RawRecords:
    """Consecutive complete records at the start of log bytes, including blank records.

    ``end`` and ``blank_bytes`` are known after ``blocks`` was read to its end.
    """

    def __init__(
        self, phy_offset: int, data: bytes, file_size: int, rules: ScanRules, topics: TopicCache
    ) -> None:
        """``data`` begins at ``phy_offset``; the last record may be incomplete."""
        self.phy_offset = phy_offset
        self.end = phy_offset
        """Phy offset after the last record; a blank record ends where the next file starts."""
        self.blank_bytes = 0
        """Bytes of blank records."""
        self._data = data
        self._file_size = file_size
        self._rules = rules
        self._topics = topics

    def blocks(self) -> Iterator[RecordScan]:
        """Yield the records in blocks, one per file; read each block to its end before the next.

        Raises:
            CorruptionError: no valid record where one should start, or a record that no file could
                hold; iterating over a block raises it too.
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
                return  # the start of a record, maybe of a blank one, or nothing
            self.blank_bytes += left
            self.end += left

    def parts(self) -> Iterator[memoryview]:
        """Yield the bytes of the records, one part per file."""
        at, data = self.phy_offset, memoryview(self._data)
        while at < self.end:
            end = min(self.end, at + self._file_size - at % self._file_size)
            yield data[at - self.phy_offset : end - self.phy_offset]
            at = end

    def before(self, end: int) -> "RawRecords":
        """Return the records that end at or before ``end``; ``blocks`` has not read them yet."""
        data = self._data[: end - self.phy_offset]
        return RawRecords(self.phy_offset, data, self._file_size, self._rules, self._topics)
