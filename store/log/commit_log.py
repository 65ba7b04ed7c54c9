"""CommitLog: every message of the store, appended at one end.

Invariants:
  I1  A record's first eight bytes (size and magic) are written after the rest of it, so a killed
      process leaves a whole record or none.
  I2  Every record leaves at least eight bytes behind itself in its file, for the blank record.
  I3  Nothing before the end of the log changes any more.

Source: RocketMQ ``CommitLog``, ``DefaultAppendMessageCallback``.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from store.config import StoreConfig
from store.core import handle_bus_errors
from store.errors import (
    CorruptionError,
    DiskFullError,
    IllegalMessageError,
    RefusedStoreError,
    StoreError,
    StoreFailedError,
    StoreIOError,
)
from store.files import LAST_OFFSET
from store.log.log_map import LogMap
from store.log.log_reads import LogReads
from store.log.mapped_file import PAGE_BYTES, MappedFile
from store.log.mapped_file_queue import MappedFileQueue
from store.log.raw_records import RawRecords, check_raw
from store.record.encoder import EncodedRecord, assemble, with_property_crc
from store.record.record_layout import (
    BLANK,
    BLANK_SIZE,
    MAGIC_BLANK,
    BlankRecord,
)
from store.record.scan import ScanRules

if TYPE_CHECKING:
    from store.log.synced_mark import SyncedMark

R = TypeVar("R")
_NO_START = bytes(BLANK_SIZE)


def now_ms() -> int:
    """Return the store time of a record that is appended now."""
    return time.time_ns() // 1_000_000


class Appended(NamedTuple):
    """Where and when one record was appended."""

    phy_offset: int
    size: int
    store_timestamp: int


class EncodedRecords(Protocol[R]):
    """Records that are written by compiled code, see ``FastPut.encoded``."""

    @property
    def next_bytes(self) -> int:
        """Return the bytes of the next record that is to be appended; 0: all were."""

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all that are to be appended."""

    def append(self, target: LogMap | bytearray, results: list[R], /) -> None:
        """Append as many as the current file has room for."""


class CommitLog(LogReads):
    """The log of one store.

    One thread appends at a time (the caller holds the append lock); any thread reads what lies
    below ``max_phy_offset``. Every other method is for opening and closing.
    """

    def __init__(self, folders: Sequence[Path], config: StoreConfig, *, read_only: bool) -> None:
        """Describe the log in ``folders``, of which only the first is written to."""
        if config.handle_bus_errors:
            handle_bus_errors()
        warm_pages = config.flush_least_pages_when_warm if config.warm_mapped_file_enable else 0
        files = MappedFileQueue(
            folders,
            config.mapped_file_size_commit_log,
            mapped_max=config.mapped_files_max,
            read_only=read_only,
            warm_pages=warm_pages,
        )
        super().__init__(files)
        self._transient = config.is_transient
        self._syncs_each_put = config.syncs_each_put
        self._property_crc = config.enabled_append_prop_crc
        self.current = self.prepared = None
        self.mark: SyncedMark | None = None
        """Where ``note_synced`` writes; set once the log is whole."""
        self._fault: StoreError | None = None  # of the first flush that failed
        self._unflushed: list[MappedFile] = []  # rolled since the last flush, oldest first
        self.appended_records = 0
        """Records appended since the log was opened."""
        self.blank_bytes = 0
        """Bytes of blank records written since then."""
        self.followed_timestamp = 0
        """Store time, ms, of the last record that came from another store; 0: none has."""
        self.append_began = 0
        """Store time, ms, of the append that is under way; 0: none is."""

    def load(self) -> None:
        """Take in the files; until ``set_end`` the log counts as full.

        Raises:
            CorruptionError: a file has a wrong name or size, or one is missing.
        """
        self.files.load()
        self.end = min(self.files.end_offset(), LAST_OFFSET)  # in the last file there can be

    # ---- the end of the log (opening)

    def set_end(self, phy_offset: int) -> None:
        """Make ``phy_offset`` the end in memory; files behind it are left alone."""
        self.end = self._flushed = phy_offset
        for file in self.files:
            over = phy_offset - file.file_from_offset
            file.wrote_position = file.flushed_position = min(max(over, 0), self._file_size)
        self.current = self.files.find(phy_offset)

    def truncate(self, phy_offset: int, *, is_blank: bool = False) -> None:
        """Make ``phy_offset`` the end on disk too: what lies behind it is zeroed and synced.

        Files behind it are deleted. The caller has saved what was worth saving. ``is_blank``: he
        has found zeros behind it that a clean close has left, so they are on disk as well.
        """
        self.files.truncate(phy_offset)
        self.set_end(phy_offset)
        if self.current is not None and not is_blank:
            self.current.zero(phy_offset - self.current.file_from_offset)

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
        self.append_began = timestamp = now_ms()
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
            file.check_written(target)
            file.wrote_position = end
            self.end = phy_offset + size
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
        self.append_began = now_ms()
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

    def append_encoded(self, records: EncodedRecords[R], results: list[R], *, whole: bool) -> None:
        """Append ``records``, which write themselves, as ``append_list`` does.

        ``results`` get those of what was appended.

        Raises:
            DiskFullError: no room for the next file, and nothing was appended.
            IllegalMessageError: a record, or with ``whole`` the list, is longer than a file.
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

    def _append_run(
        self,
        file: MappedFile,
        records: Sequence[EncodedRecord],
        queue_offsets: Sequence[int],
        done: list[Appended],
    ) -> None:
        start = file.wrote_position
        phy_offset = first = file.file_from_offset + start
        timestamp = now_ms()
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
        file.check_written(target)
        file.wrote_position = end
        self.end = phy_offset
        self.appended_records += len(records)

    def check_raw(self, phy_offset: int, data: bytes, rules: ScanRules) -> RawRecords:
        """Return the whole records at the begin of ``data``, checked; nothing is written.

        Raises:
            RefusedStoreError: they do not continue the log; an empty one begins at a file's start.
            CorruptionError: no valid record where one should start.
        """
        begins = self._is_empty() and phy_offset % self._file_size == 0
        if phy_offset != self.end and not begins:
            raise RefusedStoreError(
                f"records from {phy_offset} on do not continue the log, which ends at {self.end}",
                path=self.files.folder, phy_offset=phy_offset,
            )  # fmt: skip
        return check_raw(phy_offset, data, self._file_size, rules, self._topics)

    def append_raw(self, raw: RawRecords) -> int:
        """Append checked records as they are, one after the other; return how many, without blanks.

        Fewer than there are if there is no room for a next file.

        Raises:
            DiskFullError: no room for the next file, and nothing was appended.
        """
        self.append_began = now_ms()
        at = raw.phy_offset
        if at != self.end:
            self._leave_empty_file()
        try:
            for record in raw.before(raw.end):
                try:
                    file = self._roll(0, at) if self.current is None else self._writable(0)
                except DiskFullError:
                    if at == raw.phy_offset:
                        raise
                    break
                start, target = file.wrote_position, file.target()
                end = start + len(record)
                target[start + BLANK_SIZE : end] = record[BLANK_SIZE:]
                target[start : start + BLANK_SIZE] = record[:BLANK_SIZE]  # I1
                file.check_written(target)
                file.wrote_position = end
                self.end = at = at + len(record)
        finally:
            self.append_began = 0
        appended = [record.size for record in raw.records if record.phy_offset < at]
        if appended:
            self.followed_timestamp = raw.records[len(appended) - 1].store_timestamp
        self.appended_records += len(appended)
        self.blank_bytes += at - raw.phy_offset - sum(appended)
        return len(appended)

    def _is_empty(self) -> bool:
        return self.end <= max(self.files.min_offset(), 0)

    def _leave_empty_file(self) -> None:
        """Let the file of a log without a record go: the log begins elsewhere."""
        self.current = self.prepared = None
        self.files.drop_all()

    def _writable(self, size: int) -> MappedFile:
        """Return the file that takes ``size`` bytes, its blocks reserved."""
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
                self.prepared.bring_in_singly(singly=False)  # it is read now, from end to end
            file.bring_in_singly(singly=True)
        self.prepared = file

    def _roll(self, size: int, start: int | None = None) -> MappedFile:
        """Start the next file: the new one is made first, then the old one gets its blank.

        ``start``: where an empty log begins.
        """
        if size + BLANK_SIZE > self._file_size:
            raise IllegalMessageError(
                f"a record of {size} bytes does not fit a file of {self._file_size}"
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
            self._unflushed.append(old)  # before current moves on, see flush
        self._prepare(new)
        self.current = new
        self.files.make_ahead()
        return new

    # ---- commit, flush and close

    def commit(self, least_pages: int = 0) -> None:
        """Write what waits in memory (transient store pool) into the files: it can be read then.

        ``least_pages``: only if as many pages of 4 KiB wait. Any thread.

        Raises:
            StoreIOError: the disk refused; the store must not be written to any more.
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
        """Make the log durable up to where it ended at the call; return that offset.

        One thread at a time. Releases the GIL.

        Raises:
            StoreIOError: the disk refused; the store must not be written to any more.
            CorruptionError: a file has shrunk; likewise.
            StoreFailedError: it did before. Asked again the kernel would say that all is well,
                since it has given up the pages that it could not write.
        """
        if self._fault is not None:
            raise StoreFailedError(
                f"an earlier flush of the log failed: {self._fault}"
            ) from self._fault
        end, current = self.end, self.current  # in this order: a roll may come in between
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
        """Write down durably how far the log is on disk. Any thread."""
        if self.mark is not None:
            self.mark.note(self._flushed)

    def close(self) -> None:
        """Let the files go; the caller has flushed. Views that are held stay valid."""
        if self.mark is not None:
            self.mark.close()
        self.files.close()
