"""CommitLog: every message of the store, appended at one end.

Invariants:
  I1  A record's first eight bytes (size and magic) are written after the rest of it, so a killed
      process leaves a whole record or none.
  I2  Every record leaves at least eight bytes behind itself in its file, for the blank record.
  I3  Nothing before the end of the log changes any more.

Source: RocketMQ ``CommitLog``, ``DefaultAppendMessageCallback``.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.config import StoreConfig
from store.errors import (
    CorruptionError,
    DiskFullError,
    IllegalMessageError,
    MagicCodeError,
    StoreFailedError,
    StoreIOError,
)
from store.log.mapped_file import PAGE_BYTES, MappedFile
from store.log.mapped_file_queue import MappedFileQueue
from store.log.record_times import store_timestamps
from store.record.decoder import StoredMessage, record_span
from store.record.encoder import EncodedRecord, assemble, with_property_crc
from store.record.message import SysFlag
from store.record.record_layout import (
    BLANK,
    BLANK_SIZE,
    HEAD,
    MAGIC_BLANK,
    MIN_RECORD_SIZE,
    BlankRecord,
    store_timestamp_position,
)
from store.record.scan import ScannedRecord, ScanRules, TopicCache, scan_block

if TYPE_CHECKING:
    from store.log.synced_mark import SyncedMark

_SCAN_BYTES = 1 << 20
_STAMP = Struct(">q")
_SYS_FLAG = Struct(">i")
_NO_START = bytes(BLANK_SIZE)
_SYS_FLAG_AT = HEAD.offset("sys_flag")
_STAMP_SPAN = store_timestamp_position(SysFlag.BORN_HOST_V6) + _STAMP.size
"""Bytes that hold the store timestamp of any record; no record is shorter."""


class Appended(NamedTuple):
    """Where and when one record was appended."""

    phy_offset: int
    size: int
    store_timestamp: int


class CommitLog:
    """The log of one store.

    One thread appends at a time (the caller holds the append lock); any thread reads what lies
    below ``max_phy_offset``. Every other method is for opening and closing.
    """

    def __init__(self, folders: Sequence[Path], config: StoreConfig, *, read_only: bool) -> None:
        """Describe the log in ``folders``, of which only the first is written to."""
        self.files = MappedFileQueue(
            folders,
            config.mapped_file_size_commit_log,
            mapped_max=config.mapped_files_max,
            read_only=read_only,
            warm_pages=config.flush_least_pages_when_warm if config.warm_mapped_file_enable else 0,
        )
        self._transient = config.is_transient
        self._property_crc = config.enabled_append_prop_crc
        self._file_size = config.mapped_file_size_commit_log
        self._current: MappedFile | None = None
        self._prepared: MappedFile | None = None
        self._end = 0
        self._flushed = 0
        self.mark: SyncedMark | None = None
        """Where ``note_synced`` writes; set once the log is whole."""
        self._fault: StoreIOError | None = None  # of the first flush that failed
        self._unflushed: list[MappedFile] = []  # rolled since the last flush, oldest first
        self._topics = TopicCache()
        self.appended_records = 0
        """Records appended since the log was opened."""
        self.blank_bytes = 0
        """Bytes of blank records written since then."""
        self.append_began = 0
        """Store time, ms, of the append that is under way; 0: none is."""

    def load(self) -> None:
        """Take in the files; until ``set_end`` the log counts as full.

        Raises:
            CorruptionError: a file has a wrong name or size, or one is missing.
        """
        self.files.load()
        self._end = self.files.end_offset()

    # ---- questions (any thread)

    def min_phy_offset(self) -> int:
        """Return the start of the oldest file, -1 without files."""
        return self.files.min_offset()

    def max_phy_offset(self) -> int:
        """Return the end of the log: where the next record goes."""
        return self._end

    def flushed_phy_offset(self) -> int:
        """Return up to where the log is surely on disk."""
        return self._flushed

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log."""
        low, end = self.files.min_offset(), phy_offset + size
        if phy_offset < low or end > self._end or size < MIN_RECORD_SIZE:
            return -1
        try:
            head = self.files.select(phy_offset, _STAMP_SPAN)
        except CorruptionError:  # a unit that points across the end of a file
            return -1
        sys_flag = int(_SYS_FLAG.unpack_from(head, _SYS_FLAG_AT)[0])
        return int(_STAMP.unpack_from(head, store_timestamp_position(sys_flag))[0])

    def store_timestamps(
        self, phy_offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return ``store_timestamp`` of many records, for a fraction of the time."""
        return store_timestamps(self.files, self._end, phy_offsets, sizes)

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
        rules = rules or ScanRules()
        end = self._end if end is None else end
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
            start = at
            for record in scan_block(data, at, left, rules, self._topics):
                yield record
                at = record.phy_offset + record.size
            if at > start:
                continue
            # A blank record, one longer than a block, or none.
            if left < BLANK_SIZE:
                raise MagicCodeError("the file ends without a blank record", phy_offset=at)
            size = record_span(file.read(position, BLANK_SIZE), 0, left, at)
            if size:
                yield from scan_block(file.read(position, size), at, left, rules, self._topics)
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

    # ---- the end of the log (opening)

    def set_end(self, phy_offset: int) -> None:
        """Make ``phy_offset`` the end in memory; files behind it are left alone."""
        self._end = self._flushed = phy_offset
        for file in self.files:
            over = phy_offset - file.file_from_offset
            file.wrote_position = file.flushed_position = min(max(over, 0), self._file_size)
        self._current = self.files.find(phy_offset)

    def truncate(self, phy_offset: int, *, is_blank: bool = False) -> None:
        """Make ``phy_offset`` the end on disk too: what lies behind it is zeroed and synced.

        Files behind it are deleted. The caller has saved what was worth saving. ``is_blank``: he
        has found zeros behind it that a clean close has left, so they are on disk as well.
        """
        self.files.truncate(phy_offset)
        self.set_end(phy_offset)
        if self._current is not None and not is_blank:
            self._current.zero(phy_offset - self._current.file_from_offset)

    def write_again(self, start: int, end: int) -> None:
        """Write the bytes from ``start`` to ``end``, phy offsets, once more, durably.

        For what a failed sync has left: the kernel takes those pages for written.
        """
        for file in self.files.files():
            first = file.file_from_offset
            if start < first + file.file_size and first < end:
                file.write_again(max(start - first, 0), min(end - first, file.file_size))

    # ---- appending (under the append lock)

    def append(self, record: EncodedRecord, queue_offset: int) -> Appended:
        """Append one record; it is in the log when this returns, on disk after a flush.

        Raises:
            DiskFullError: no room for the next file; nothing was appended.
            IllegalMessageError: the record is longer than a file.
        """
        size = record.size
        self.append_began = timestamp = time.time_ns() // 1_000_000
        try:
            file = self._writable(size)
            position = file.wrote_position
            phy_offset = file.file_from_offset + position
            rest = assemble(record, queue_offset, phy_offset, timestamp)
            if self._property_crc:
                rest = with_property_crc(record.start, rest)
            target = file.target()
            end = position + size
            target[position + BLANK_SIZE : end] = rest
            target[position : position + BLANK_SIZE] = record.start  # I1: from here on it is there
            file.wrote_position = end
            self._end = phy_offset + size
            self.appended_records += 1
        finally:
            self.append_began = 0
        return Appended(phy_offset, size, timestamp)

    def append_list(
        self, records: Sequence[EncodedRecord], queue_offsets: Sequence[int], *, whole: bool
    ) -> list[Appended]:
        """Append several records with one store timestamp, in order.

        Records that fit the current file become visible together; a killed process leaves the
        first of them, or none. With ``whole`` all of them go into one file (RocketMQ's client
        batch).

        Fewer are appended, and returned, if there is no room for a next file, or before a record
        that is longer than a file.

        Raises:
            DiskFullError: no room for the next file, and nothing was appended.
            IllegalMessageError: a record, or with ``whole`` the list, is longer than a file.
        """
        done: list[Appended] = []
        first = 0
        total = sum(record.size for record in records) if whole else 0
        self.append_began = time.time_ns() // 1_000_000
        try:
            while first < len(records):
                try:
                    file = self._writable(total if whole else records[first].size)
                except (DiskFullError, IllegalMessageError):
                    if not done:
                        raise
                    return done
                room = self._file_size - file.wrote_position - BLANK_SIZE
                last = first
                while last < len(records) and records[last].size <= room:
                    room -= records[last].size
                    last += 1
                self._append_run(file, records[first:last], queue_offsets[first:last], done)
                first = last
        finally:
            self.append_began = 0
        return done

    def _append_run(
        self,
        file: MappedFile,
        records: Sequence[EncodedRecord],
        queue_offsets: Sequence[int],
        done: list[Appended],
    ) -> None:
        start = file.wrote_position
        phy_offset = first = file.file_from_offset + start
        timestamp = time.time_ns() // 1_000_000
        parts: list[bytes] = []
        for record, queue_offset in zip(records, queue_offsets, strict=True):
            rest = assemble(record, queue_offset, phy_offset, timestamp)
            if self._property_crc:
                rest = with_property_crc(record.start, rest)
            parts += (_NO_START, rest)
            done.append(Appended(phy_offset, record.size, timestamp))
            phy_offset += record.size
        target, end = file.target(), start + phy_offset - first
        target[start:end] = b"".join(parts)
        at = start
        for record in records:  # I1, in order: nothing valid may lie behind what is not
            target[at : at + BLANK_SIZE] = record.start
            at += record.size
        file.wrote_position = end
        self._end = phy_offset
        self.appended_records += len(records)

    def _writable(self, size: int) -> MappedFile:
        """Return the file that takes ``size`` bytes, its blocks reserved."""
        file = self._current
        if file is None or file.wrote_position + size + BLANK_SIZE > self._file_size:
            return self._roll(size)
        if file is not self._prepared:
            file.reserve()
            self._prepare(file)
        return file

    def _prepare(self, file: MappedFile) -> None:
        if self._transient:
            file.use_heap()
        self._prepared = file

    def _roll(self, size: int) -> MappedFile:
        """Start the next file: the new one is made first, then the old one gets its blank."""
        if size + BLANK_SIZE > self._file_size:
            raise IllegalMessageError(
                f"a record of {size} bytes does not fit a file of {self._file_size}"
            )
        old = self._current
        if old is not None and old.wrote_position < self._file_size and old is not self._prepared:
            old.reserve()
        new = self.files.append_file(self._end)
        if old is not None and (left := self._file_size - old.wrote_position):
            blank = BLANK.pack(BlankRecord(left, MAGIC_BLANK))
            old.target()[old.wrote_position : old.wrote_position + BLANK_SIZE] = blank
            old.wrote_position = self._file_size
            self.blank_bytes += left
        if old is not None:
            self._end = new.file_from_offset
            self._unflushed.append(old)  # before _current moves on, see flush
        self._prepare(new)
        self._current = new
        self.files.make_ahead()
        return new

    # ---- commit, flush and close

    def commit(self, least_pages: int = 0) -> None:
        """Write what waits in memory (transient store pool) into the files: it can be read then.

        ``least_pages``: only if as many pages of 4 KiB wait. Any thread.

        Raises:
            StoreIOError: the disk refused; the store must not be written to any more.
        """
        current = self._current
        if not self._transient or current is None:
            return
        waiting = current.wrote_position - current.readable_position
        if waiting < least_pages * PAGE_BYTES and not self._unflushed:
            return
        for file in [*self._unflushed, current]:
            file.commit()

    def flush(self) -> int:
        """Make the log durable up to where it ended at the call; return that offset.

        One thread at a time. Releases the GIL.

        Raises:
            StoreIOError: the disk refused; the store must not be written to any more.
            StoreFailedError: it did before. Asked again the kernel would say that all is well,
                since it has given up the pages that it could not write.
        """
        if self._fault is not None:
            raise StoreFailedError(
                f"an earlier flush of the log failed: {self._fault}"
            ) from self._fault
        end, current = self._end, self._current  # in this order: a roll may come in between
        try:
            while self._unflushed:
                self._unflushed[0].flush()
                self._unflushed.pop(0)
            if current is not None:
                current.flush()
        except StoreIOError as exc:
            self._fault = exc
            raise
        self._flushed = max(self._flushed, end)
        return end

    def note_synced(self) -> None:
        """Write down durably how far the log is on disk. Any thread."""
        if self.mark is not None:
            self.mark.note(self._flushed)

    def close(self) -> None:
        """Let the files go; the caller has flushed. Views that are held stay valid."""
        if self.mark is not None:
            self.mark.close()
        self.files.close()
