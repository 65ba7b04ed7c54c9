"""LogBackup: the commit log of a backup. Closed files first, then the rest, with a checked end."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from cqstore.store.errors import CorruptionError, DiskFullError, StoreStateError
from cqstore.store.files import make_folder, reading
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.foreign_log_tail import ForeignLogTail
from cqstore.store.log.log_files import list_log_files
from cqstore.store.path_kind import exists
from cqstore.store.progress import Progress
from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.record.scan import ScanRules, TopicCache, scan_block
from cqstore.store.service.offline.store_copy import COPIES, blocks_below, copy_file, share_file
from cqstore.store.service.recovering.find_log_end import data_behind, valid_record_behind
from cqstore.store.settings.config import StoreConfig

_BLOCK = 8 << 20
_TRIES = 100


class LogBackup:
    """Copies the files of the log in ``folders`` to ``target``. One thread."""

    def __init__(
        self, folders: Sequence[Path], target: Path, progress: Progress, *, link: bool
    ) -> None:
        """Find the current end of the log.

        Raises:
            StoreIOError: its files cannot be read.
        """
        self._folders, self._target, self._progress, self._link = folders, target, progress, link
        ends = ForeignLogTail(folders).refresh()
        self._known_end = ends.max_phy_offset if ends else -1
        """Records before it were complete when the backup began, or are damaged."""
        self._file_size = ends.file_size if ends else 0
        self._closed = [
            path for path in self._files() if int(path.name) + self._file_size <= self._known_end
        ]
        make_folder(target)

    def copy_closed(self) -> str:
        """Copy the files that are never written again; return how they were copied."""
        way = ""
        for path in self._closed:
            self._progress(int(path.name))
            if not exists(self._target / path.name):
                with suppress(FileNotFoundError):  # it has just expired
                    way = share_file(path, self._target / path.name, link=self._link)
        return way

    def check_room(self, root: Path) -> None:
        """Refuse if there is not enough space for the files to copy.

        The first closed file is copied on the way, to find out how the file system does that.

        Raises:
            DiskFullError: there is not enough space.
        """
        files = self._closed
        self._closed = files[:1]
        shared = self.copy_closed() not in {"", COPIES}
        self._closed = files
        folders = {root, *(each for each in self._folders if root not in each.parents)}
        wanted = sum(blocks_below(folder) for folder in folders)
        if shared:
            wanted -= sum(path.stat().st_size for path in files if exists(path))
        free = shutil.disk_usage(self._target).free
        if wanted > free:
            raise DiskFullError(
                f"not enough disk space: the backup needs {wanted} bytes, {free} bytes are free",
                path=self._target.parent,
            )

    def copy_rest(self) -> None:
        """Copy the files that are being written, and leave out those that have expired meanwhile.

        If all earlier files have expired, the files that exist then are copied.

        Raises:
            StoreStateError: this happens again and again.
        """
        for _ in range(_TRIES):
            for path in self._files():
                if not exists(self._target / path.name):
                    self._progress(int(path.name))
                    with suppress(FileNotFoundError):
                        copy_file(str(path), str(self._target / path.name))
            there = self._files()
            minimum = min((int(path.name) for path in there), default=0)
            for path in self._copied():
                if int(path.name) < minimum:
                    path.unlink()
            if not there or self._copied():
                return
        raise StoreStateError(
            "cannot copy the log: its files expire as fast as they are copied. Try again later",
            path=self._folders[0],
        )

    def has_grown(self) -> bool:
        """Return whether the end of the store's log has changed since the backup began."""
        ends = ForeignLogTail(self._folders).refresh()
        return (ends.max_phy_offset if ends else -1) != self._known_end

    def bounds(self) -> tuple[int, int]:
        """Return start and end of the copied log, the end found by its heads; -1 without a log."""
        ends = ForeignLogTail([self._target]).refresh()
        return (ends.min_phy_offset, ends.max_phy_offset) if ends else (-1, -1)

    def cut_to_proven_end(self) -> int | None:
        """Check all records from the last closed file on; zero bytes after the last complete one.

        These may be a record that was being written. Returns ``None``, or the phy offset of a
        record that was damaged when the backup began: then nothing is cut.
        """
        if (proven := self._proven_end()) is None:
            return None
        path, end = proven
        if end < self._known_end:
            return end
        size = path.stat().st_size
        os.truncate(path, end - int(path.name))
        os.truncate(path, size)
        for later in self._copied():
            if int(later.name) > int(path.name):
                later.unlink()
        return None

    def damage(self, *, crashed: bool) -> int | None:
        """Check every record of a closed store's log from its last closed file on.

        Returns the phy offset of a damaged record; ``None`` without one. Invalid bytes at the very
        end are not damage if the store has ``crashed``: a record was being written.
        """
        if (proven := self._proven_end()) is None:
            return None
        _, end = proven
        config = StoreConfig(mapped_file_size_commit_log=self._file_size)
        log = CommitLog([self._target], config, read_only=True)
        log.load()
        try:
            if crashed:
                return None if valid_record_behind(log, end) is None else end
            return end if data_behind(log, end) else None
        finally:
            log.close()

    def _proven_end(self) -> tuple[Path, int] | None:
        """Return the copied file in which the complete records end early, and their end.

        Checks from the last closed file on; ``None`` if all these files are full.
        """
        if self._known_end < 0:
            return None
        topics = TopicCache()
        first = max(self._known_end - 1, 0) // self._file_size * self._file_size
        for path in self._copied():
            start, size = int(path.name), path.stat().st_size
            if start < first:
                continue
            with reading(path) as file:
                end = _valid_end(file, start, size, topics)
            if end != start + size:
                return path, end
        return None

    def _files(self) -> list[Path]:
        return [path for path, _ in list_log_files(self._folders).values()]

    def _copied(self) -> list[Path]:
        return [path for path, _ in list_log_files([self._target]).values()]


def _valid_end(file: BinaryIO, start: int, size: int, topics: TopicCache) -> int:
    """Return the phy offset after the last of the complete records at the start of a log file."""
    at, end, block = start, start + size, _BLOCK
    while at < end:
        base = at
        file.seek(base - start)
        data = file.read(block)
        try:
            for record in scan_block(data, base, end - base, ScanRules(), topics):
                at = record.phy_offset + record.size
            rest = data[at - base :]
            if len(rest) >= BLANK_SIZE and not record_span(rest, 0, end - at, at):
                return end
        except CorruptionError:
            return at
        if at == base:  # larger than the block, or cut off by the end of the file
            if base + len(data) >= end:
                return at
            block *= 2
    return at
