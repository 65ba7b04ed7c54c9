"""LogReads: what any thread may ask of the commit log, of what lies before its end."""

from collections.abc import Iterator
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from store.errors import CorruptionError, MagicCodeError
from store.log import _tail
from store.log.mapped_file import MappedFile
from store.log.mapped_file_queue import MappedFileQueue
from store.log.record_times import store_timestamps
from store.record.decoder import StoredMessage, record_span
from store.record.message import SysFlag
from store.record.record_layout import (
    BLANK_SIZE,
    HEAD,
    MIN_RECORD_SIZE,
    store_timestamp_position,
)
from store.record.scan import Scan, ScannedRecord, ScanRules, TopicCache, scan_block

_SCAN_BYTES = 1 << 20
_STAMP = Struct(">q")
_SYS_FLAG = Struct(">i")
_SYS_FLAG_AT = HEAD.offset("sys_flag")
_STAMP_SPAN = store_timestamp_position(SysFlag.BORN_HOST_V6) + _STAMP.size
"""Bytes that hold the store timestamp of any record; no record is shorter."""


class LogReads(_tail.LogTail):
    """The reading side of one log."""

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files
        self.readable = files.readable
        self.min_phy_offset = files.min_offset
        """Return the start of the oldest file, -1 without files. Any thread."""
        self._file_size = files.file_size
        self.end = 0
        self._flushed = 0
        self._topics = TopicCache()

    # ---- questions (any thread)

    def max_phy_offset(self) -> int:
        """Return the end of the log: where the next record goes."""
        return self.end

    def flushed_phy_offset(self) -> int:
        """Return up to where the log is surely on disk."""
        return self._flushed

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log.

        Raises:
            TruncatedRecordError: the file has shrunk.
            StoreIOError: the disk refused.
        """
        low, end = self.files.min_offset(), phy_offset + size
        if phy_offset < low or end > self.end or size < MIN_RECORD_SIZE:
            return -1
        file = self.files.find(phy_offset)
        if file is None:  # it has just expired
            return -1
        position = phy_offset - file.file_from_offset
        if position + _STAMP_SPAN > file.readable_position:  # across the end of a file
            return -1
        head = self.files.select(phy_offset, _STAMP_SPAN)
        sys_flag = int(_SYS_FLAG.unpack_from(head, _SYS_FLAG_AT)[0])
        return int(_STAMP.unpack_from(head, store_timestamp_position(sys_flag))[0])

    def store_timestamps(
        self, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return ``store_timestamp`` of many records, for a fraction of the time."""
        return store_timestamps(self.files, self.end, phy_offsets, sizes)

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        """Return the start of the newest file whose first record was stored by ``timestamp``."""
        for file in reversed(self.files.files()):
            first = self.first_record(file)
            if first is not None and 0 < first.store_timestamp <= timestamp:
                return file.file_from_offset
        return max(self.min_phy_offset(), 0)

    def first_record(self, file: MappedFile) -> ScannedRecord | None:
        """Return the first record of ``file`` if it is a valid one."""
        try:
            return next(self.scan(file.file_from_offset, file.file_from_offset + 1), None)
        except CorruptionError:
            return None

    # ---- reading (any thread)

    def view(self, phy_offset: int, size: int) -> memoryview:
        """Return ``size`` bytes as a read-only view; see ``MappedFile.select`` on its life.

        Raises:
            CorruptionError: the span is not in the log.
        """
        return self.files.select(phy_offset, size)

    def message(self, phy_offset: int) -> StoredMessage:
        """Return the record that starts at ``phy_offset``, over a view of the log.

        Raises:
            CorruptionError: no whole record starts there (a blank one, the middle of one, the end
                of the log).

        Source: RocketMQ ``DefaultMessageStore.lookMessageByOffset``.
        """
        left = self._file_size - phy_offset % self._file_size
        size = record_span(self.files.select(phy_offset, BLANK_SIZE), 0, left, phy_offset)
        if not size:
            raise MagicCodeError("a blank record holds no message", phy_offset=phy_offset)
        return StoredMessage(self.files.select(phy_offset, size), phy_offset)

    def scan(
        self,
        phy_offset: int,
        end: int | None = None,
        rules: ScanRules | None = None,
        blanks: list[tuple[int, int]] | None = None,
    ) -> Iterator[ScannedRecord]:
        """Yield the records that start in [phy_offset, end), checked, in log order.

        ``end`` defaults to the end of the log. ``phy_offset`` must be the start of a record, a
        file, or a blank record. Blank records are added to ``blanks``: phy offset and bytes to the
        end of the file.

        Raises:
            CorruptionError: no valid record where one should start; the error names the place.
                At the end of a log whose end is not known yet this is the normal way to stop.
        """
        for block in self.scan_blocks(phy_offset, end, rules, blanks):
            yield from block

    def scan_blocks(
        self,
        phy_offset: int,
        end: int | None = None,
        rules: ScanRules | None = None,
        blanks: list[tuple[int, int]] | None = None,
    ) -> Iterator[Scan]:
        """Yield the records as ``scan`` does, those of one read at a time.

        Each block has to be walked to its end before the next one is asked for.

        Raises:
            CorruptionError: as ``scan``; also the walk of a block raises it.
        """
        rules = rules or ScanRules()
        end = self.end if end is None else end
        at = phy_offset
        while at < end:
            file = self.files.find(at)
            if file is None:
                raise MagicCodeError("no file of the commit log holds this", phy_offset=at)
            position, left = (
                at - file.file_from_offset,
                file.file_from_offset + self._file_size - at,
            )
            there = min(left, end - at, file.readable_position - position)
            data = file.read(position, min(there, _SCAN_BYTES))
            scan = scan_block(data, at, left, rules, self._topics)
            yield scan
            if scan.behind > at:
                at = scan.behind
                continue
            # A blank record, one longer than a block, or none.
            if left < BLANK_SIZE:
                raise MagicCodeError("the file ends without a blank record", phy_offset=at)
            size = record_span(file.read(position, BLANK_SIZE), 0, left, at)
            if size:
                yield scan_block(file.read(position, size), at, left, rules, self._topics)
            elif blanks is not None:
                blanks.append((at, left))
            at += size or left

    def scan_kept(
        self, rules: ScanRules | None = None, start: int = 0, end: int | None = None
    ) -> Iterator[ScannedRecord]:
        """Yield the records from ``start`` on that the log has, checked, in log order.

        As ``scan``, but what has expired, also meanwhile, is passed over.

        Raises:
            CorruptionError: no valid record where one should start.
        """
        at = max(start, self.min_phy_offset(), 0)
        while True:
            try:
                for record in self.scan(at, end, rules):
                    yield record
                    at = record.phy_offset + record.size
            except MagicCodeError as exc:
                low = self.min_phy_offset()
                if exc.phy_offset is None or exc.phy_offset >= low:
                    raise
                at = low  # its file has gone meanwhile
                continue
            return
