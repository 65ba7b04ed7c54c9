"""CommitLog: all messages of the store, in the order in which they were appended.

Invariants:
  I1  A record's first eight bytes (size and magic) are written after the rest of it, so a killed
      process leaves a complete record or none.
  I2  Every record leaves at least eight bytes free after it in its file, for the blank record.
  I3  Bytes before the end of the log do not change.

Source: RocketMQ ``CommitLog``, ``DefaultAppendMessageCallback``.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from cqstore.store.core import handle_bus_errors
from cqstore.store.errors import (
    CorruptionError,
    DiskFullError,
    IllegalMessageError,
    MagicCodeError,
    RefusedStoreError,
    StoreError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.files import LAST_OFFSET, PAGE_BYTES
from cqstore.store.log import _tail
from cqstore.store.log.log_blocks import log_blocks
from cqstore.store.log.log_map import LogMap
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.log.raw_records import RawRecords
from cqstore.store.log.record_times import Longs, known_timestamps, store_timestamps
from cqstore.store.record.decoder import StoredMessage, record_span
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import (
    BLANK,
    BLANK_SIZE,
    HEAD,
    MAGIC_BLANK,
    MIN_RECORD_SIZE,
    BlankRecord,
    store_timestamp_position,
)
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules, TopicCache
from cqstore.store.sentences import REOPEN
from cqstore.store.settings.config import StoreConfig

if TYPE_CHECKING:
    from cqstore.store.log.synced_mark import SyncedMark

R = TypeVar("R")
_STAMP = Struct(">q")
_SYS_FLAG = Struct(">i")
_SYS_FLAG_AT = HEAD.offset("sys_flag")
_STAMP_SPAN = store_timestamp_position(SysFlag.BORN_HOST_V6) + _STAMP.size
"""Bytes up to the end of any record's store timestamp; no record is shorter."""


def now_ms() -> int:
    """Return the store time of a record that is appended now."""
    return time.time_ns() // 1_000_000


class Appended(NamedTuple):
    """Position and store time of one appended record."""

    phy_offset: int
    size: int
    store_timestamp: int


class EncodedRecords(Protocol[R]):
    """Records that compiled code writes, see ``FastPut.encoded``."""

    @property
    def next_bytes(self) -> int:
        """Return the size of the next record to append in bytes; 0: all are appended."""

    @property
    def total_bytes(self) -> int:
        """Return the size of all records to append, in bytes."""

    def append(self, target: LogMap | bytearray, results: list[R], /) -> None:
        """Append as many records as fit the current file."""


class CommitLog(_tail.LogTail):
    """The log of one store.

    One thread appends at a time (the caller holds the append lock); any thread reads what is below
    ``max_phy_offset``. All other methods are for opening and closing.
    """

    def __init__(self, folders: Sequence[Path], config: StoreConfig, *, read_only: bool) -> None:
        """Create the log object for ``folders``; new files are created in the first folder."""
        if config.handle_bus_errors:
            handle_bus_errors()
        warm_pages = config.flush_least_pages_when_warm if config.warm_mapped_file_enable else 0
        self.files = files = MappedFileQueue(
            folders, config.mapped_file_size_commit_log, mapped_max=config.mapped_files_max,
            read_only=read_only, warm_pages=warm_pages,
        )  # fmt: skip
        self.readable = files.readable
        self.min_phy_offset = files.min_offset
        """Return the start of the oldest file, -1 without files. Any thread."""
        self._file_size = files.file_size
        self.end = 0
        self._flushed = 0
        self._topics = TopicCache()
        self._transient = config.is_transient
        self._syncs_each_put = config.syncs_each_put
        self.current = self.prepared = None
        self.mark: SyncedMark | None = None
        """The mark that ``note_synced`` updates; set once the log is recovered."""
        self._fault: StoreError | None = None  # of the first failed flush
        self._unflushed: list[MappedFile] = []  # rolled since the last flush, oldest first
        self.appended_records = 0
        """Records appended since the log was opened."""
        self.blank_bytes = 0
        """Bytes of blank records written since then."""
        self.followed_timestamp = 0
        """Store time, ms, of the last record received from another store; 0: none."""
        self.append_began = 0
        """Store time, ms, of the append in progress; 0: none."""

    def load(self) -> None:
        """Find the log's files; until ``set_end`` the log counts as full.

        Raises:
            CorruptionError: a file has an invalid name or size, or a file is missing.
        """
        self.files.load()
        self.end = min(self.files.end_offset(), LAST_OFFSET)  # in the last file there can be

    # ---- questions (any thread)

    def max_phy_offset(self) -> int:
        """Return the end of the log: the phy offset of the next record."""
        return self.end

    def flushed_phy_offset(self) -> int:
        """Return the phy offset up to which the log is certainly on disk."""
        return self._flushed

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log.

        Raises:
            TruncatedRecordError: the file was truncated.
            StoreIOError: a read from disk failed.
        """
        low, end = self.files.min_offset(), phy_offset + size
        if phy_offset < low or end > self.end or size < MIN_RECORD_SIZE:
            return -1
        file = self.files.find(phy_offset)
        if file is None:  # it has just expired
            return -1
        position = phy_offset - file.file_from_offset
        if position + _STAMP_SPAN > file.readable_position:  # the record crosses the end of a file
            return -1
        head = self.files.select(phy_offset, _STAMP_SPAN)
        sys_flag = int(_SYS_FLAG.unpack_from(head, _SYS_FLAG_AT)[0])
        return int(_STAMP.unpack_from(head, store_timestamp_position(sys_flag))[0])

    def store_timestamps(self, phy_offsets: Longs, sizes: Longs) -> Longs:
        """Return ``store_timestamp`` of many records; much faster than single calls."""
        return store_timestamps(self.files, self.end, phy_offsets, sizes)

    def known_timestamps(self, phy_offsets: Longs, sizes: Longs) -> Longs:
        """Return the store times of many records; ``NO_TIME``: no record of that size is there."""
        return known_timestamps(self.files, self.end, phy_offsets, sizes)

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        """Return the start of the newest file whose first record was stored by ``timestamp``."""
        for file in reversed(self.files.files()):
            first = self.first_record(file)
            if first is not None and 0 < first.store_timestamp <= timestamp:
                return file.file_from_offset
        return max(self.min_phy_offset(), 0)

    def first_record(self, file: MappedFile) -> ScannedRecord | None:
        """Return the first record of ``file`` if it is valid."""
        try:
            return next(self.scan(file.file_from_offset, file.file_from_offset + 1), None)
        except CorruptionError:
            return None

    # ---- reading (any thread)

    def view(self, phy_offset: int, size: int) -> memoryview:
        """Return ``size`` bytes as a read-only view; ``MappedFile.select`` describes its lifetime.

        Raises:
            CorruptionError: the range is not in the log.
        """
        return self.files.select(phy_offset, size)

    def message(self, phy_offset: int) -> StoredMessage:
        """Return the record that starts at ``phy_offset``, over a view of the log.

        Raises:
            CorruptionError: no complete record starts there (a blank record, the middle of a
                record, the end of the log).

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
            CorruptionError: no valid record where one should start; the error has its phy offset.
                If the end of the log is not known yet, this is the normal way to stop.
        """
        for block in self.scan_blocks(phy_offset, end, rules, blanks):
            yield from block

    def scan_blocks(
        self,
        phy_offset: int,
        end: int | None = None,
        rules: ScanRules | None = None,
        blanks: list[tuple[int, int]] | None = None,
    ) -> Iterator[RecordScan]:
        """Yield the records as ``scan`` does, in blocks: the records of one read each.

        Iterate over each block to its end before the next one.

        Raises:
            CorruptionError: as for ``scan``; iterating over a block raises it too.
        """
        end = self.end if end is None else end
        yield from log_blocks(
            self.files, phy_offset, end, rules or ScanRules(), self._topics, blanks
        )

    def scan_kept(
        self, rules: ScanRules | None = None, start: int = 0, end: int | None = None
    ) -> Iterator[ScannedRecord]:
        """Yield the log's records from ``start`` on, checked, in log order.

        Like ``scan``, but expired records are skipped, also if they expire during the scan.

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
                at = low  # its file has expired meanwhile
                continue
            return

    # ---- the end of the log (opening)

    def set_end(self, phy_offset: int) -> None:
        """Set the end to ``phy_offset`` in memory; files after it are not changed."""
        self.end = self._flushed = phy_offset
        for file in self.files:
            over = phy_offset - file.file_from_offset
            file.wrote_position = file.flushed_position = min(max(over, 0), self._file_size)
        self.current = self.files.find(phy_offset)

    def truncate(self, phy_offset: int, *, is_blank: bool = False) -> None:
        """Set the end to ``phy_offset`` on disk too: bytes after it are zeroed and synced.

        Files after it are deleted. The caller has saved anything worth saving. ``is_blank``: the
        caller found only zeros after it, left by a clean close, so they are on disk already.
        """
        self.files.truncate(phy_offset)
        self.set_end(phy_offset)
        if self.current is not None and not is_blank:
            self.current.zero(phy_offset - self.current.file_from_offset)

    def write_again(self, start: int, end: int) -> None:
        """Write the bytes between the phy offsets ``start`` and ``end`` again, durably.

        Needed after a failed sync: the kernel considers those pages written.
        """
        for file in self.files.files():
            first = file.file_from_offset
            if start < first + file.file_size and first < end:
                file.write_again(max(start - first, 0), min(end - first, file.file_size))

    # ---- appending (under the append lock)

    def append_encoded(self, records: EncodedRecords[R], results: list[R], *, whole: bool) -> None:
        """Append ``records``, which write themselves, in order; ``results`` receive their results.

        They are in the log when this returns, and on disk after a flush. Those that fit the current
        file become visible together, with one store time; a killed process leaves the first of
        them, or none. With ``whole`` all go into one file (RocketMQ's client batch). Fewer are
        appended if there is no space for the next file, or before a record larger than a file.

        Raises:
            DiskFullError: no space for the next file, and nothing was appended.
            IllegalMessageError: a record, or with ``whole`` the list, is larger than a file.
        """
        self.append_began = now_ms()
        try:
            while size := records.next_bytes:
                try:
                    file = self._writable(records.total_bytes if whole else size)
                except (DiskFullError, IllegalMessageError):
                    if not results:
                        raise
                    return
                records.append(file.target(), results)
        finally:
            self.append_began = 0

    def raw_records(self, phy_offset: int, data: bytes, rules: ScanRules) -> RawRecords:
        """Return the complete records at the start of ``data``, to be checked; nothing is written.

        Raises:
            RefusedStoreError: they do not continue the log; an empty one begins at a file's start.
        """
        if phy_offset != self.end and (phy_offset % self._file_size or not self._is_empty()):
            raise RefusedStoreError(
                f"cannot append records at phy offset {phy_offset}: the log ends at {self.end}",
                path=self.files.folder, phy_offset=phy_offset,
            )  # fmt: skip
        return RawRecords(phy_offset, data, self._file_size, rules, self._topics)

    def append_raw(self, raw: RawRecords) -> int:
        """Append checked records unchanged; return the phy offset after them.

        If there is no space for the next file, it is that file's start. Call ``count_raw`` next.

        Raises:
            DiskFullError: no space for the next file, and nothing was appended.
        """
        self.append_began = now_ms()
        at = raw.phy_offset
        if at != self.end:
            self._leave_empty_file()
        try:
            for part in raw.parts():
                try:
                    file = self._roll(0, at) if self.current is None else self._writable(0)
                except DiskFullError:
                    if at == raw.phy_offset:
                        raise
                    break
                start, target = file.wrote_position, file.target()
                end = start + len(part)
                target[start + BLANK_SIZE : end] = part[BLANK_SIZE:]
                target[start : start + BLANK_SIZE] = part[:BLANK_SIZE]  # I1, for all records
                file.check_written(target)
                file.wrote_position = end
                self.end = at = at + len(part)
        finally:
            self.append_began = 0
        return at

    def count_raw(self, raw: RawRecords, records: int, last: ScannedRecord | None) -> None:
        """Count the ``records`` that ``append_raw`` has appended, without blank records."""
        if last is not None:
            self.followed_timestamp = last.store_timestamp
        self.appended_records += records
        self.blank_bytes += raw.blank_bytes

    def _is_empty(self) -> bool:
        return self.end <= max(self.files.min_offset(), 0)

    def _leave_empty_file(self) -> None:
        """Delete the files of a log without a record: the log begins elsewhere."""
        self.current = self.prepared = None
        self.files.drop_all()

    def _writable(self, size: int) -> MappedFile:
        """Return the file for ``size`` bytes, with reserved blocks."""
        file = self.current
        if file is None or file.wrote_position + size + BLANK_SIZE > self._file_size:
            return self._roll(size)
        if file is not self.prepared:
            file.reserve()
            self._prepare(file)
        return file

    def _prepare(self, file: MappedFile) -> None:
        if self._transient:
            file.use_heap()
        if self._syncs_each_put:
            if self.prepared is not None:
                self.prepared.bring_in_singly(singly=False)  # it is read sequentially now
            file.bring_in_singly(singly=True)
        self.prepared = file

    def _roll(self, size: int, start: int | None = None) -> MappedFile:
        """Start the next file: create it first, then write the blank record of the old one.

        ``start``: the start of an empty log.
        """
        if size + BLANK_SIZE > self._file_size:
            raise IllegalMessageError(
                f"record too large: {size} bytes, at most {self._file_size - BLANK_SIZE}"
            )
        old = self.current
        if old is not None and old.wrote_position < self._file_size and old is not self.prepared:
            old.reserve()
        new = self.files.append_file(self.end if start is None else start)
        if old is not None and (left := self._file_size - old.wrote_position):
            blank = BLANK.pack(BlankRecord(left, MAGIC_BLANK))
            target = old.target()
            target[old.wrote_position : old.wrote_position + BLANK_SIZE] = blank
            old.check_written(target)
            old.wrote_position = self._file_size
            self.blank_bytes += left
        self.end = new.file_from_offset
        if old is not None:
            self._unflushed.append(old)  # before `current` changes, see flush
        self._prepare(new)
        self.current = new
        self.files.make_ahead()
        return new

    # ---- commit, flush and close

    def commit(self, least_pages: int = 0) -> None:
        """Write data that waits in memory (transient store pool) to the files; then it is readable.

        ``least_pages``: do nothing unless this many pages of 4 KiB wait. Any thread.

        Raises:
            StoreIOError: writing failed; the store must not be written to any more.
        """
        current = self.current
        if not self._transient or current is None:
            return
        waiting = current.wrote_position - current.readable_position
        if waiting < least_pages * PAGE_BYTES and not self._unflushed:
            return
        for file in [*self._unflushed, current]:
            file.commit()

    def flush(self) -> int:
        """Make the log durable up to its end at the time of the call; return that offset.

        One thread at a time. Releases the GIL.

        Raises:
            StoreIOError: the sync failed; the store must not be written to any more.
            CorruptionError: a file was truncated; the store must not be written to any more.
            StoreFailedError: an earlier flush failed. Another sync would report success, because
                the kernel has dropped the pages that it could not write.
        """
        if self._fault is not None:
            raise StoreFailedError(
                f"an earlier flush of the log failed: {self._fault}. {REOPEN}"
            ) from self._fault
        end, current = self.end, self.current  # in this order: a roll may happen in between
        try:
            while self._unflushed:
                self._unflushed[0].flush()
                self._unflushed.pop(0)
            if current is not None:
                current.flush()
        except (StoreIOError, CorruptionError) as exc:
            self._fault = exc
            raise
        self._flushed = max(self._flushed, end)
        return end

    def note_synced(self) -> None:
        """Record durably how far the log is on disk. Any thread."""
        if self.mark is not None:
            self.mark.note(self._flushed)

    def close(self, *, keep_ahead: bool = False) -> None:
        """Release the files; the caller has flushed. Views that are held stay valid."""
        if self.mark is not None:
            self.mark.close()
        self.files.close(keep_ahead=keep_ahead)
