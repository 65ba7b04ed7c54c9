"""IndexFile: one file of the hash index, with header, slots and entries.

New keys are collected in memory and written in batches, always entries, then header, then slots: a
concurrent reader of the file finds complete chains. A batch that a killed process did not write is
added again by the replay, because after a crash no unfinished file is trusted.

Source: RocketMQ ``IndexFile``.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.core import _maps
from cqstore.store.errors import (
    CorruptionError,
    RetryableDiskFullError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreIOError,
    TruncatedRecordError,
    os_errors,
    retryable,
)
from cqstore.store.files import Descriptor, replacing
from cqstore.store.index import _chain, _writer
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.key_hash import key_hash
from cqstore.store.index.layout import (
    ENTRY_DTYPE,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    SLOT_DTYPE,
    IndexEntry,
    IndexGeometry,
    IndexHeader,
    slot_position,
    time_diff,
)
from cqstore.store.java_numbers import LONG_MAX, LONG_MIN
from cqstore.store.sentences import REOPEN

BATCH_KEYS = 1024
"""Number of keys that are collected before they are written."""
UNFINISHED_NAME = "index.new"
"""Name of a file during its creation, not a valid index file name; it is renamed then."""
_BLOCK_ROWS = 1 << 16
_BLANK = IndexEntry(0, 0, 0, 0)


class IndexRow(NamedTuple):
    """One entry with its number, for dumps."""

    number: int
    key_hash: int
    slot: int
    phy_offset: int
    store_timestamp: int
    """Begin timestamp plus ``time_diff``: up to 999 ms before the record's store time."""
    time_diff: int
    previous_index: int


class IndexFile(_chain.ChainFile):
    """One index file. One thread puts, drains and flushes; any thread selects.

    The file's content is never trusted: a chain must lead to decreasing numbers within the file,
    and ends where it does not.
    """

    def __init__(self, path: Path, geometry: IndexGeometry, *, read_only: bool) -> None:
        """Read the header of an existing file.

        Raises:
            TruncatedRecordError: the file is shorter than its header.
            StoreIOError: the file cannot be read.
        """
        self.path = path
        self.geometry = geometry
        self.read_only = read_only
        self._failed = False
        self._writer = _writer.KeyWriter(*geometry)
        self.waiting = (IndexBatch(), 1)
        self._first_time_diff = 0
        self._header_seen = b""
        self.begin_timestamp = self.end_timestamp = 0
        self.begin_phy_offset = self.end_phy_offset = 0
        self._hash_slot_count = 0
        self._next_index = 1
        with os_errors("open an index file", path):
            self.opened: Descriptor | None = Descriptor(
                path, os.O_RDONLY if read_only else os.O_RDWR
            )
            """The file, ``None`` after ``close``."""
        self.mapped = _maps.FileMap(self.opened.number, geometry.file_size, self.opened)
        """The map for compiled code; ``None`` after ``close``."""
        self._adopt_header(self._read_header())

    @classmethod
    def create(cls, path: Path, geometry: IndexGeometry, before: "IndexFile | None") -> "IndexFile":
        """Create an empty file that follows ``before``; its name and size are durable.

        Its begin and end are the end of ``before``, as in RocketMQ, so the first entry's
        ``time_diff`` is relative to it.

        Raises:
            DiskFullError: there is no space for the file.
            StoreIOError: the file cannot be created.
        """
        header = IndexHeader(0, 0, 0, 0, 0, 0)
        if before is not None:
            times, offsets = (before.end_timestamp,) * 2, (before.end_phy_offset,) * 2
            header = IndexHeader(*times, *offsets, 0, 0)
        unfinished = path.with_name(UNFINISHED_NAME)
        with os_errors("create an index file", path), replacing(path, unfinished) as file:
            file.write(INDEX_HEADER.pack(header))
            file.truncate(geometry.file_size)
        return cls(path, geometry, read_only=False)

    @property
    def count(self) -> int:
        """Return how many keys the file has, including pending ones."""
        return self._next_index - 1

    @property
    def is_full(self) -> bool:
        """Return whether no further key fits."""
        return self._next_index >= self.geometry.entries

    @property
    def is_cut_short(self) -> bool:
        """Return whether a full disk interrupted ``drain``; it must finish before further keys."""
        pending, first = self.waiting
        return len(pending) > 0 and self._writer.has_heads(first)

    # ---- writing (one thread)

    def put_batch(self, batch: IndexBatch, start: int) -> int:
        """Add the rows of ``batch`` from ``start`` on, as many as fit; return how many.

        Readers find them at once; they are on disk after ``drain``, and durable after ``flush``.

        Raises:
            RetryableDiskFullError: no space; keep ``batch`` unchanged until its keys are written.
            StoreIOError: a batch could not be written.
            StoreFailedError: an earlier write failed.
        """
        end = min(len(batch), start + self.geometry.entries - self._next_index)
        if end <= start:
            return 0
        first = self._next_index == 1
        if first:
            begin = batch.store_timestamp(start)
            self._first_time_diff = time_diff(begin, self.begin_timestamp)
            self.begin_timestamp = begin
            self.begin_phy_offset = batch.phy_offset(start)
        # The first entry is written at once: only a used file shows its numbers of slots and
        # entries.
        pending = self.waiting[0]
        is_due = first or len(pending) + end - start >= BATCH_KEYS
        if is_due and not len(pending) and end - start == len(batch):
            self.waiting = (batch, self._next_index)  # kept for a short time only, so not copied
        else:
            pending.extend(batch, start, end)
        self._next_index += end - start
        self.end_timestamp = batch.store_timestamp(end - 1)
        self.end_phy_offset = batch.phy_offset(end - 1)
        if is_due:
            self.drain()
        return end - start

    def drain(self) -> None:
        """Write the collected keys; not durable until ``flush``.

        Raises:
            RetryableDiskFullError: no space; the keys stay readable, and a later call writes them.
            StoreIOError: any other error; the keys stay readable, the file accepts no more.
            StoreFailedError: an earlier write failed.
        """
        pending, first = self.waiting
        if not len(pending):
            return
        self._check_sound()
        file = self._descriptor()  # keeps it open: a close must not free its number
        try:
            with retryable(), os_errors("write an index file", self.path):
                hash_slot_count = self._writer.write(
                    file.number, pending, 0, len(pending), first, self.begin_timestamp,
                    self._first_time_diff, INDEX_HEADER.pack(self._header()),
                )  # fmt: skip
        except RetryableDiskFullError:
            raise
        except _writer.UnreadSlotsError as exc:
            self._failed = True
            raise self._unread(*exc.args) from None
        except StoreError:
            self._failed = True
            raise
        self._hash_slot_count = hash_slot_count
        self.waiting = (IndexBatch(), first + len(pending))
        self._writer.forget_heads()
        if self.is_full:
            self._writer = _writer.KeyWriter(*self.geometry)  # drops the cache of the last one

    def flush(self) -> None:
        """Make every key that was put durable. Releases the GIL while it syncs.

        Raises:
            StoreIOError: the sync failed.
            StoreFailedError: an earlier write failed.
        """
        self.drain()
        self.sync()

    def sync(self) -> None:
        """Make drained keys durable; any thread may call this, unlike the other methods.

        Raises:
            StoreIOError: the sync failed; the file accepts no more keys.
            StoreFailedError: it failed before; a second sync would not report the lost data.
        """
        self._check_sound()
        try:
            with os_errors("flush an index file", self.path):
                file = self._descriptor()  # keeps it open
                os.fdatasync(file.number)
        except StoreIOError:
            self._failed = True
            raise

    def _check_sound(self) -> None:
        if self._failed:
            raise StoreFailedError(
                f"an earlier write of the index file failed. {REOPEN}", path=self.path
            )

    def close(self) -> None:
        """Close the file; collected keys that were not drained are lost."""
        self.opened = self.mapped = None

    def destroy(self) -> None:
        """Delete the file. A reader that has it open may finish its search.

        Raises:
            StoreIOError: the file cannot be deleted.
        """
        with os_errors("delete an index file", self.path):
            self.path.unlink()

    # ---- reading (any thread)

    def select(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Return the phy offsets of at most ``max_num`` records for ``key``, newest first.

        ``begin`` and ``end`` (ms, both included) are compared in seconds, as the entries store
        them. Only hashes are compared, so records of other keys may be among them. Unlike in
        RocketMQ, the first entry has the begin timestamp itself: its ``time_diff`` may be relative
        to the previous file.

        Raises:
            StoreClosedError: after ``close``.

        Source: RocketMQ ``IndexFile.selectPhyOffset``.
        """
        wanted, found = key_hash(topic, key), list[int]()
        pending, count = self.waiting
        if len(pending):
            rows = pending.find(topic, key)
            if self._select_pending(found, pending, count, rows, max_num, begin, end):
                return found
        begin, end = max(begin, LONG_MIN), min(end, LONG_MAX)
        if begin <= end:
            request = found, wanted, min(max_num, LONG_MAX), begin, end, count
            if not self.walk(*request, is_checked=False):
                for _ in self._chain(wanted):
                    pass  # raises the error of a damaged chain
                self.walk(*request, is_checked=True)
        return found

    def _select_pending(
        self, found: list[int], pending: IndexBatch, count: int, rows: list[int], max_num: int,
        begin: int, end: int,
    ) -> bool:  # fmt: skip
        """Add keys that are not on disk yet; return whether the search is complete."""
        start = self.begin_timestamp
        for row in rows:
            index = count + row
            diff = time_diff(pending.store_timestamp(row), start) if index > 1 else 0
            stored = start + 1000 * diff
            if len(found) >= max_num:
                return True
            if begin <= stored <= end:
                _add(found, pending.phy_offset(row))
            if stored < begin:
                return True
        return False

    def contains(self, topic: str, key: str, phy_offset: int) -> bool:
        """Return whether the record at ``phy_offset`` is indexed under ``key`` (by hash)."""
        pending, _ = self.waiting
        if any(pending.phy_offset(row) == phy_offset for row in pending.find(topic, key)):
            return True
        wanted = key_hash(topic, key)
        for _, entry in self._chain(wanted):
            if entry.phy_offset < phy_offset:
                return False  # entries are in log order
            if entry.key_hash == wanted and entry.phy_offset == phy_offset:
                return True
        return False

    def header(self) -> IndexHeader:
        """Return the header, including pending keys (slots in use: those on disk)."""
        return self._header()

    def refresh(self) -> None:
        """Read-only: read the header again, which another process may have written."""
        if self.read_only and (data := self.read(0, INDEX_HEADER.size)) != self._header_seen:
            self._adopt_header(INDEX_HEADER.unpack_from(data))
            self._header_seen = data

    def blocks(self) -> Iterator[tuple[int, NDArray[np.void]]]:
        """Yield the entries on disk in order: the first one's number, and ``ENTRY_DTYPE`` rows.

        Raises:
            TruncatedRecordError: the file ends before its last entry.
        """
        _, count = self.waiting
        for first in range(1, count, _BLOCK_ROWS):
            rows = min(_BLOCK_ROWS, count - first)
            data = self.read(self.geometry.entry_position(first), rows * INDEX_ENTRY.size)
            yield first, np.frombuffer(data, ENTRY_DTYPE)

    def slot_blocks(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield the slots on disk: the first one's number, and their values.

        Raises:
            TruncatedRecordError: the file ends before its last slot.
        """
        for first in range(0, self.geometry.slots, _BLOCK_ROWS):
            slots = min(_BLOCK_ROWS, self.geometry.slots - first)
            data = self.read(slot_position(first), slots * INDEX_SLOT.size)
            yield first, np.frombuffer(data, SLOT_DTYPE)

    def rows(self) -> Iterator[IndexRow]:
        """Yield the entries on disk one by one, for dumps."""
        slots, begin = self.geometry.slots, self.begin_timestamp
        for first, block in self.blocks():
            for index, (hashed, phy_offset, diff, previous) in enumerate(block.tolist(), first):
                stored = begin + (1000 * diff if index > 1 else 0)
                yield IndexRow(index, hashed, hashed % slots, phy_offset, stored, diff, previous)

    def entry(self, index: int) -> IndexEntry:
        """Return entry ``index`` as it is on disk.

        Raises:
            TruncatedRecordError: the file ends before the end of the entry.
        """
        data = self.read(self.geometry.entry_position(index), INDEX_ENTRY.size)
        return INDEX_ENTRY.unpack_from(data)

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes of the file.

        Raises:
            TruncatedRecordError: the file ends before the end of the range.
        """
        file = self._descriptor()  # keeps it open: a close must not free its number
        try:
            data = os.pread(file.number, size, position)
        except OSError as exc:
            raise self._unread(position, size, 0, exc.errno or errno.EIO) from exc
        if len(data) != size:
            raise self._unread(position, size, len(data), 0)
        return data

    # ---- inside

    def _unread(self, position: int, size: int, got: int, code: int) -> StoreError:
        """Return the error of a failed read with errno ``code``, or 0 at the end of the file."""
        if code:
            return StoreIOError(f"cannot read the index file: {os.strerror(code)}", path=self.path)
        return TruncatedRecordError(
            "the index file is truncated", path=self.path, position=position,
            expected=f"{size} bytes", got=f"{got} bytes",
        )  # fmt: skip

    def _chain(self, hashed: int) -> Iterator[tuple[int, IndexEntry]]:
        """Yield the entries of the slot of ``hashed``, newest first: number, entry.

        Raises:
            CorruptionError: an entry of the chain contains only zeros.
            TruncatedRecordError: the file ends before an entry.
        """
        slot = self.read(slot_position(hashed % self.geometry.slots), INDEX_SLOT.size)
        index = INDEX_SLOT.unpack_from(slot).newest
        self.refresh()  # after the slot: a header written before it covers the slot's entry
        limit = self.waiting[1] if self.read_only else self.geometry.entries
        while 0 < index < limit:
            entry = self.entry(index)
            if entry == _BLANK and not self._may_be_blank(index, hashed):
                raise CorruptionError(
                    "an index entry is missing", path=self.path,
                    position=self.geometry.entry_position(index),
                    expected=f"entry {index}, to which its slot points", got="zeros",
                )  # fmt: skip
            yield index, entry
            limit = index
            index = entry.previous_index

    def _may_be_blank(self, index: int, hashed: int) -> bool:
        """Return whether an entry of zeros may be valid: the log's first record, with hash 0."""
        if hashed % self.geometry.slots or self.begin_phy_offset:
            return False
        before = self.entry(index - 1) if index > 1 else None
        return before is None or (before != _BLANK and before.phy_offset == 0)

    def _read_header(self) -> IndexHeader:
        return INDEX_HEADER.unpack_from(self.read(0, INDEX_HEADER.size))

    def _adopt_header(self, header: IndexHeader) -> None:
        self.begin_timestamp, self.end_timestamp = header.begin_timestamp, header.end_timestamp
        self.begin_phy_offset, self.end_phy_offset = header.begin_phy_offset, header.end_phy_offset
        self._hash_slot_count = header.hash_slot_count
        self._next_index = min(max(header.index_count, 1), self.geometry.entries)
        self.waiting = (self.waiting[0], self._next_index)

    def _header(self) -> IndexHeader:
        return IndexHeader(
            self.begin_timestamp, self.end_timestamp, self.begin_phy_offset, self.end_phy_offset,
            self._hash_slot_count, self._next_index,
        )  # fmt: skip

    def _descriptor(self) -> Descriptor:
        found = self.opened
        if found is None:
            raise StoreClosedError("the index file is closed", path=self.path)
        return found


def _add(found: list[int], phy_offset: int) -> None:
    """Add a record once: a record that has a key twice has two consecutive entries."""
    if not found or found[-1] != phy_offset:
        found.append(phy_offset)
