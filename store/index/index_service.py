"""IndexService: all files of the hash index of a store, in the folder ``index``.

After a crash, only files that were full and synced are trusted (up to the checkpoint's index
timestamp); the others are removed, and the log is replayed from ``resume_phy_offset``. So keys may
be collected in memory: the replay adds all keys again that a killed process loses.

Source: RocketMQ ``IndexService``.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    StoreClosedError,
    UnsupportedFormatError,
    os_errors,
    retryable,
)
from cqstore.store.files import check_regular, make_folder, sync_folder
from cqstore.store.index import _chain
from cqstore.store.index.geometry import (
    GEOMETRY_HINT,
    common_size,
    default_geometry,
    find_geometry,
)
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_check import IndexFinding, check_index_file
from cqstore.store.index.index_faults import IndexFaults
from cqstore.store.index.index_file import UNFINISHED_NAME, IndexFile
from cqstore.store.index.layout import IndexGeometry
from cqstore.store.index.rolled_file_sync import RolledFileSync
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.path_kind import is_dir

_LOG = StoreLogger(__name__)
INDEX_NAME_DIGITS = 17
"""Digits of a file's name, the local time of its creation: ``yyyyMMddHHmmssSSS``."""
_MAX_NAME = LONG_MAX


def open_index_file(path: Path, slots: int | None = None, entries: int | None = None) -> IndexFile:
    """Open one bare index file read-only; numbers that are not given are found from the file.

    Raises:
        UnsupportedFormatError: the numbers cannot be found.
        CorruptionError: the file's size does not match them.
        StoreIOError: the file cannot be read.
    """
    geometry = find_geometry([path], slots, entries)
    if geometry is None:
        raise UnsupportedFormatError(
            "cannot find the numbers of slots and entries: the index file has no keys."
            f" {GEOMETRY_HINT}",
            path=path,
        )
    _check_size(path, geometry)
    return IndexFile(path, geometry, read_only=True)


class IndexService(_chain.ChainFiles):
    """The hash index of one store.

    One thread at a time puts, flushes, truncates and deletes (it holds the dispatcher's lock). Any
    thread queries, and finds a key as soon as ``put_batch`` has returned.
    """

    def __init__(
        self, folder: Path, slots: int | None, entries: int | None, *, read_only: bool
    ) -> None:
        """Create the object for the index in ``folder``; accesses no file.

        Args:
            folder: the folder of the files; need not exist.
            slots: slots of each file, ``None`` to find the number from the files.
            entries: entries of each file, including the unused one, or ``None``.
            read_only: change no byte.
        """
        self.folder = folder
        self.geometry: IndexGeometry | None = None
        self.faults = IndexFaults(folder, read_only=read_only)
        """The unusable parts of the index."""
        self._given = (slots, entries)
        self._read_only = read_only
        self.files = ()
        """Oldest first; replaced, never changed: readers need no lock."""
        self._current: IndexFile | None = None  # the last file, for new keys; None: read-only
        self._synced_files = 0  # leading files that need no replay
        self._replay = False
        self._index_timestamp = 0
        self._rolled: RolledFileSync | None = None

    # ---- opening

    def load(self, last_exit_ok: bool, index_timestamp: int) -> None:  # noqa: FBT001
        """Open the existing files; after a crash, read-write, remove those that cannot be trusted.

        These are the first file that is not full or ends after ``index_timestamp`` (the
        checkpoint's, ms), and every file after it. RocketMQ removes single files by their
        timestamps alone, so it can keep a file after a removed one.

        Raises:
            CorruptionError: read-write, a file has the wrong size, or is not a regular file.
            UnsupportedFormatError: slots and entries were not given and cannot be found.
            StoreIOError: a file cannot be read or removed.
        """
        self._index_timestamp = index_timestamp
        paths = self._sized(self._listed())
        if self.geometry is None:
            return
        files = [IndexFile(path, self.geometry, read_only=self._read_only) for path in paths]
        if last_exit_ok:
            files = list(self.faults.with_sound_headers(files))
        self.files = tuple(files)
        self._synced_files = len(files)
        self._replay = not last_exit_ok
        if last_exit_ok:
            synced = [file.end_timestamp for file in files if file.is_full]
            self._index_timestamp = max([index_timestamp, *synced])
        else:
            sure = (file.is_full and file.end_timestamp <= index_timestamp for file in files)
            self._synced_files = next((at for at, good in enumerate(sure) if not good), len(files))
            self._remove_unsynced()
        self._set_current()

    def resume_phy_offset(self) -> int | None:
        """Return where the replay of the log must start for a complete index; ``None``: no replay.

        After a clean stop nothing is missing, also if no record had a key and there is no file.
        Otherwise it is the start of the last record of the last kept file, 0 without files: this
        record is replayed too, because its keys may be split between two files. An earlier start
        does no harm. Call it after ``load`` and ``truncate_dirty``.
        """
        if not self._replay:
            return None
        kept = self.files[: self._synced_files]
        return kept[-1].end_phy_offset if kept else 0

    def truncate_dirty(self, phy_offset: int) -> int:
        """Remove the first file with a record at or after ``phy_offset``, and all files after it.

        ``phy_offset`` is the log's new end. Returns how many files were removed; call
        ``resume_phy_offset`` for the replay.

        Such a file would keep the log's next records out of the index. Read-only: removes nothing.

        Raises:
            StoreIOError: a file cannot be removed.
        """
        dirty = (
            file.end_phy_offset >= max(phy_offset, 1)
            or (file.count > 0 and file.end_phy_offset >= phy_offset)
            for file in self.files
        )
        first = next((at for at, bad in enumerate(dirty) if bad), len(self.files))
        removed = len(self.files) - first
        if removed:
            self._replay = True
            self._synced_files = min(self._synced_files, first)
            self._wait_for_rolled()
            self._remove_unsynced()
            self._set_current()
        return removed

    # ---- writing (one thread at a time)

    @property
    def index_timestamp(self) -> int:
        """Return the checkpoint's ``index_msg_timestamp``, ms: up to it all full files are on disk.

        It increases only when a full file has been synced, some time after the next one was begun.
        After a crash RocketMQ deletes files that end later, and replays from there at most
        (``messageIndexSafe``), so the end of an unfinished file must not be reported. It decreases
        when files were removed: store it before the replay.
        """
        return self._index_timestamp

    def put_batch(self, batch: IndexBatch) -> None:
        """Index ``batch``, whose rows are in log order, after the batches before it.

        Idempotent: records before the last indexed one are skipped, and of that record only the
        missing keys are added (RocketMQ adds all of them again).

        Raises:
            RetryableDiskFullError: no space; put ``batch`` again, unchanged, before any other.
            StoreIOError: a file cannot be created or written.
            StoreFailedError: an earlier write failed.
            ReadOnlyStoreError: the index was opened read-only.

        Source: RocketMQ ``IndexService.buildIndex``.
        """
        if not len(batch):
            return
        file, at = self._current, 0
        if file is not None and file.is_cut_short:
            file.drain()
        if file is not None and batch.phy_offset(0) <= file.end_phy_offset:
            phys, end = batch.columns()["phy_offset"], file.end_phy_offset
            known, at = (int(np.searchsorted(phys, end, side)) for side in ("left", "right"))
            self._append(self._missing(batch, known, at), 0)
        self._append(batch, at)

    def drain(self) -> IndexFile | None:
        """Write every key that was put; return the file whose ``sync`` makes the last ones durable.

        Raises:
            StoreIOError: a write failed.
            StoreFailedError: an earlier write failed.
        """
        self._wait_for_rolled()
        if self._current is not None:
            self._current.drain()
        return self._current

    def flush(self) -> None:
        """Make every key that was put durable.

        Raises:
            StoreIOError: a write or sync failed.
            StoreFailedError: an earlier write failed.
        """
        file = self.drain()
        if file is not None:
            file.sync()

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete the leading files whose records are all before ``min_phy_offset``.

        The last file is never deleted. Returns the number of deleted files.

        Raises:
            StoreIOError: a file cannot be deleted.

        Source: RocketMQ ``IndexService.deleteExpiredFile``.
        """
        files = self.files
        alive = (file.end_phy_offset >= min_phy_offset for file in files[:-1])
        expired = next((at for at, good in enumerate(alive) if good), max(len(files) - 1, 0))
        if expired:
            self._wait_for_rolled()
            self.files = files[expired:]
            self._synced_files = max(self._synced_files - expired, 0)
            self._destroy(files[:expired])
        return expired

    def close(self, *, flush: bool = True) -> None:
        """Make everything durable if ``flush`` is true, and release the files.

        One call is enough; if it is interrupted, the next call releases the rest, and flushes
        nothing.

        Raises:
            StoreIOError: a write failed; the files are released all the same.
            StoreFailedError: an earlier write failed.
        """
        try:
            if flush and not self.closed:
                self.flush()
        finally:
            self.closed = True
            self._current = None
            if self._rolled is not None:
                self._rolled.end()
            for file in self.files:
                file.close()

    # ---- reading (any thread)

    def query(self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the phy offsets of at most ``max_num`` records for ``key``, newest first.

        Both times are included and compared in seconds. The result may contain records of other
        keys with the same hash, and expired records: the caller checks each record.

        Raises:
            StoreClosedError: after ``close``.

        Source: RocketMQ ``IndexService.queryOffset``.
        """
        if self.closed:
            raise StoreClosedError("the index is closed", path=self.folder)
        found: list[int] = []
        for file in reversed(self.files):
            file.refresh()
            if begin_ms <= file.end_timestamp and end_ms >= file.begin_timestamp:
                again = bool(found)  # one record may have entries in two files
                more = file.select(topic, key, max_num - len(found) + again, begin_ms, end_ms)
                found += more[1:] if again and more[:1] == found[-1:] else more
                del found[max_num:]
            if len(found) >= max_num or (file.count and file.begin_timestamp < begin_ms):
                break
        return found

    def check(self, max_phy_offset: int | None = None) -> Iterator[IndexFinding]:
        """Yield problems: unknown files, headers, chains, slots, entries after the log's end.

        ``max_phy_offset`` is that end. Collected keys must have been flushed.
        """
        yield from (*self.faults.ignored, *self.faults.unread)
        before: IndexFile | None = None
        for file in self.files:
            yield from check_index_file(file, max_phy_offset)
            if before is not None and file.begin_phy_offset < before.end_phy_offset:
                yield IndexFinding(
                    "the index file begins before the end of the previous one", str(file.path)
                )
            before = file

    # ---- inside

    def _listed(self) -> list[Path]:
        """Return the index files by name; other names are recorded as findings."""
        if not is_dir(self.folder):
            return []
        paths = []
        with os_errors("list the index files", self.folder):
            for path in sorted(self.folder.iterdir()):
                if path.name == UNFINISHED_NAME:
                    continue
                if not _is_index_name(path.name):
                    problem = "this is not an index file; it is skipped"
                    self.faults.ignored.append(IndexFinding(problem, str(path), damage=False))
                    continue
                try:
                    check_regular(path)
                    paths.append(path)
                except CorruptionError as exc:
                    self.faults.odd(path, exc)
        return paths

    def _sized(self, paths: list[Path]) -> list[Path]:
        """Find the geometry; return the files of its size; others are recorded or refused."""
        size = common_size(paths)
        usual = [path for path in paths if path.stat().st_size == size]
        slots, entries = self._given
        if size:
            self.geometry = find_geometry(usual, slots, entries)
        else:
            default = default_geometry()
            self.geometry = IndexGeometry(slots or default.slots, entries or default.entries)
        if self.geometry is None:
            return self._unknown(usual)
        fitting = []
        for path in paths:
            try:
                _check_size(path, self.geometry)
            except CorruptionError as exc:
                self.faults.odd(path, exc, last=path is paths[-1])
            else:
                fitting.append(path)
        return fitting

    def _unknown(self, paths: list[Path]) -> list[Path]:
        """Return no file, read-only: no file counts keys; files that have keys are recorded.

        Raises:
            UnsupportedFormatError: read-write, because the geometry cannot be found.
        """
        if self._read_only:
            self.faults.without_a_key(paths)
            return []
        raise UnsupportedFormatError(
            "cannot find the numbers of slots and entries: the index files have no keys."
            f" {GEOMETRY_HINT}",
            path=paths[0],
        )

    def _remove_unsynced(self) -> None:
        """Remove the files after the last one that was full and synced."""
        if self._read_only:
            return
        kept, removed = self.files[: self._synced_files], self.files[self._synced_files :]
        self.files = kept
        if removed:
            _LOG.info("removing %d index files, beginning with %s", len(removed), removed[0].path)
            self._destroy(removed)
            full = [file.end_timestamp for file in kept if file.is_full]
            self._index_timestamp = min(self._index_timestamp, max(full, default=0))

    def _destroy(self, files: tuple[IndexFile, ...]) -> None:
        """Delete ``files``, the last one first: if that fails, the rest has no gap."""
        for file in reversed(files):
            file.destroy()
        with os_errors("sync the folder of the index files", self.folder):
            sync_folder(self.folder)

    def _set_current(self) -> None:
        self._current = self.files[-1] if self.files and not self._read_only else None

    def _append(self, batch: IndexBatch, start: int) -> None:
        """Put the rows of ``batch`` from ``start`` on, into as many files as needed."""
        while start < len(batch):
            file = self._current
            if file is None or file.is_full:
                file = self._roll()
            start += file.put_batch(batch, start)

    def _missing(self, batch: IndexBatch, start: int, end: int) -> IndexBatch:
        """Return the rows of ``start:end`` that are not in any file."""
        missing = IndexBatch()
        for row, (topic, key, phy_offset, _) in enumerate(batch.rows(start, end), start):
            if not self._has(topic, key, phy_offset):
                missing.extend(batch, row, row + 1)
        return missing

    def _has(self, topic: str, key: str, phy_offset: int) -> bool:
        for file in reversed(self.files):
            if file.end_phy_offset < phy_offset:
                return False
            if file.contains(topic, key, phy_offset):
                return True
        return False

    def _roll(self) -> IndexFile:
        """Begin a new file; a separate thread syncs the full one."""
        if self.closed:
            raise StoreClosedError("the index is closed", path=self.folder)
        if self._read_only or self.geometry is None:
            raise ReadOnlyStoreError("the index is open read-only", path=self.folder)
        self._wait_for_rolled()
        full = self._current
        if full is not None:
            full.drain()
        with retryable():
            with os_errors("create the folder of the index files", self.folder):
                make_folder(self.folder)
            path = self.folder / _next_name(full.path.name if full is not None else "")
            made = IndexFile.create(path, self.geometry, full)
        _LOG.info("created index file %s", path)
        self.files = (*self.files, made)
        self._current = made
        if full is not None:
            self._rolled = RolledFileSync(full)
            self._rolled.start()  # assigned first: a close waits for it
        return made

    def _wait_for_rolled(self) -> None:
        """Wait until the file that was rolled last is on disk; raise the error of a failed sync."""
        if self._rolled is not None:
            file = self._rolled.wait()
            self._rolled = None
            self._index_timestamp = max(self._index_timestamp, file.end_timestamp)


def _check_size(path: Path, geometry: IndexGeometry) -> None:
    """Refuse an index file of another size.

    Raises:
        CorruptionError: the size does not match ``geometry``.
    """
    size = path.stat().st_size
    if size != geometry.file_size or min(geometry) < 1:
        raise CorruptionError(
            "an index file has the wrong size", path=path, position=min(size, geometry.file_size),
            expected=f"{geometry.file_size} bytes", got=f"{size} bytes",
        )  # fmt: skip


def _is_index_name(name: str) -> bool:
    """Return whether RocketMQ accepts ``name`` as an index file: a number that fits a Java long."""
    return name.isascii() and name.isdecimal() and int(name) <= _MAX_NAME


def _next_name(last: str) -> str:
    """Return a file name for now that sorts after ``last``, also if the clock was set back."""
    now = datetime.now().astimezone()
    name = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}"
    if name > last:
        return name
    name = str(int(last) + 1).zfill(len(last))
    if name <= last:
        raise UnsupportedFormatError(
            f"cannot create an index file: no valid name sorts after {last!r}"
        )
    return name
