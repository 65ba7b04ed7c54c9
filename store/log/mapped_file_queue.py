"""MappedFileQueue: the files of the commit log in order of their offsets.

Source: RocketMQ ``MappedFileQueue``, ``AllocateMappedFileService``.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.errors import (
    CorruptionError,
    MagicCodeError,
    StoreIOError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.files import check_regular, file_name, make_folder, sync_folder
from cqstore.store.log import _tail
from cqstore.store.log.file_places import FilePlaces
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.path_kind import exists, is_dir

_LOG = StoreLogger(__name__)


class MappedFileQueue(_tail.FilesByStart):
    """Files of one size whose names are their start offsets, without gaps.

    At most ``mapped_max`` files are mapped at once; the file that was mapped first is unmapped
    first. Any thread may read; all other methods are for the thread that holds the append lock.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        file_size: int,
        *,
        mapped_max: int,
        read_only: bool,
        warm_pages: int = 0,
    ) -> None:
        """Create the object for the files in ``folders``.

        ``warm_pages``: see ``MappedFile.create``.
        """
        self._warm_pages = warm_pages
        self.folder = folders[0]
        self.folders = folders
        self.places = FilePlaces(folders[:1])
        """The folders of new files."""
        self.file_size = file_size
        self.read_only = read_only
        self._mapped_max = mapped_max
        self.by_start = {}
        self._mapped: OrderedDict[int, MappedFile] = OrderedDict()
        self._mapped_lock = threading.RLock()  # guards _mapped
        self._ahead: _AheadOfTime | None = None
        self.is_end_known = False
        """If true, a file that the writer of a read-only store removes counts as expired."""

    def load(self) -> None:
        """Find the files of all folders, in order of their names. Writes nothing.

        An empty last file, as a crash during its creation leaves it, is skipped; also files with
        other names, see ``foreign_files``.

        Raises:
            CorruptionError: a file is not a regular file or does not have ``file_size`` bytes, or a
                file is missing.
        """
        paths = log_file_paths(self.folders, missing_ok=True)
        for path in paths:
            with os_errors("check a commit log file", path):
                check_regular(path)
            length = path.stat().st_size
            if length == 0 and path == paths[-1]:
                continue
            self._check_place(path, length)
            file = MappedFile(
                path, self.file_size, read_only=self.read_only,
                on_missing=self._leave_out_removed if self.read_only else None,
            )  # fmt: skip
            self.by_start[file.file_from_offset] = file  # no readers yet

    def _check_place(self, path: Path, length: int) -> None:
        """Refuse a file of another size, or a file that does not follow the last one.

        Raises:
            CorruptionError: the file has another size, or does not follow the last one.
        """
        if length != self.file_size:
            raise CorruptionError(
                "a commit log file has the wrong size", path=path,
                expected=f"{self.file_size} bytes", got=f"{length} bytes",
            )  # fmt: skip
        start, end = int(path.name), self.end_offset()
        if start % self.file_size or (self.by_start and start != end):
            expected = f"start {end}" if self.by_start else f"a multiple of {self.file_size}"
            raise CorruptionError(
                f"a commit log file is missing before this one{self._empty_folders()}", path=path,
                expected=expected, got=f"start {start}",
            )  # fmt: skip

    def _empty_folders(self) -> str:
        """Return a question about folders of the log without a file; empty if there are none."""
        empty = [str(folder) for folder in self.folders if not log_file_paths([folder])]
        if len(self.folders) == 1 or not empty:
            return ""
        return f", and {', '.join(empty)} has no file of the log: is its disk mounted?"

    def _leave_out_removed(self, start: int) -> None:
        """Forget the files that another process has removed, as after an expiry of our own.

        A missing file in the middle has not expired, and the caller reports it.

        Raises:
            MagicCodeError: the file that starts at ``start`` was removed.
        """
        there = {int(path.name) for path in log_file_paths(self.folders, missing_ok=True)}
        if not self.is_end_known or not there or min(there) <= start <= max(there):
            return
        low, high = min(there), max(there)
        self.by_start = {at: file for at, file in self.by_start.items() if low <= at <= high}
        raise MagicCodeError(
            "this commit log file was removed in the meantime", path=self.folder, phy_offset=start
        )

    # ---- reading

    def files(self) -> list[MappedFile]:
        """Return the files, oldest first."""
        return list(self.by_start.values())

    def min_offset(self) -> int:
        """Return the start of the first file, -1 without files."""
        return next(iter(self.by_start), -1)

    def end_offset(self) -> int:
        """Return the end of the last file, which counts as full; 0 without files."""
        files = self.by_start
        return next(reversed(files)) + self.file_size if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that contains ``offset``."""
        return self.by_start.get(offset - offset % self.file_size)

    def select(self, offset: int, size: int) -> memoryview:
        """Return a view of ``size`` bytes at ``offset``, see ``MappedFile.select``.

        Raises:
            TruncatedRecordError: the range is not in the log, or crosses the end of a file.
        """
        file = self.file_to_read(offset)
        return file.select(offset - file.file_from_offset, size)

    def file_to_read(self, offset: int) -> MappedFile:
        """Return the file that contains ``offset``, which may be mapped then; see ``gather``.

        Raises:
            TruncatedRecordError: no file contains it.
        """
        file = self._existing(offset)
        if not file.is_mapped:
            self._make_room(file)
        return file

    def readable(self, offset: int) -> tuple[int, object, int] | None:
        """Return start, map and readable bytes of the file with ``offset``, for compiled code.

        ``None``: no file contains ``offset``, the file was truncated, or there are too many maps.
        """
        file = self.by_start.get(offset - offset % self.file_size)
        if file is None:
            return None
        mapped = file.mapped
        if mapped is None:
            self._make_room(file)
            try:
                mapped = file.map()
            except CorruptionError:
                return None
            if not mapped.guard.is_registered:
                return None  # its map has no guard that could be checked
        # `readable_position`, without a call where possible: every pull needs it.
        there = file.wrote_position if file.heap is None else file.readable_position
        return file.file_from_offset, mapped, there

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of ``size`` bytes at ``offset``, see ``MappedFile.read``."""
        file = self._existing(offset)
        return file.read(offset - file.file_from_offset, size)

    def _existing(self, offset: int) -> MappedFile:
        """Return the file that contains ``offset``.

        Raises:
            TruncatedRecordError: no file contains it.
        """
        file = self.by_start.get(offset - offset % self.file_size)
        if file is None:
            raise TruncatedRecordError(
                "no commit log file contains this offset", path=self.folder, phy_offset=offset,
                expected=f"{self.min_offset()} to {self.end_offset()}", got=offset,
            )  # fmt: skip
        return file

    def _make_room(self, file: MappedFile) -> None:
        """Record the use of a file; files beyond the limit are unmapped, the oldest first."""
        with self._mapped_lock:
            if self.by_start.get(file.file_from_offset) is not file:
                return  # deleted meanwhile: it is freed with its last reader
            # A nested call in this thread may do the same between any two of these lines.
            self._mapped.pop(file.file_from_offset, None)
            self._mapped[file.file_from_offset] = file
            while len(self._mapped) > self._mapped_max:
                _, oldest = self._mapped.popitem(last=False)
                oldest.unmap()

    # ---- writing

    def append_file(self, start: int | None = None) -> MappedFile:
        """Return a new file after the last one (at ``start`` if there is none).

        Uses the file that was created ahead, if there is one.

        Raises:
            DiskFullError: there is no space for the file; the queue is unchanged.
        """
        offset = self.end_offset() if self.by_start else (start or 0)
        file = self._ahead.pop(offset) if self._ahead else None
        if file is None:
            if not self.by_start:  # later, a missing folder may be on a disk that was unmounted
                folder = self.places.folder(offset // self.file_size)
                with os_errors("create the folder of the commit log", folder):
                    make_folder(folder)
            file = self._create(offset)
        self.by_start = {**self.by_start, offset: file}
        self._make_room(file)
        return file

    def _create(self, offset: int) -> MappedFile:
        """Create the file that starts at ``offset``, in the folder whose turn it is. Any thread.

        An empty file of that name, which a crash during its creation left in any of the folders, is
        removed first: a log must not have two files of one name.
        """
        with os_errors("remove an empty commit log file", self.folder):
            for folder in self.folders:
                empty = folder / file_name(offset)
                if exists(empty) and empty.stat().st_size == 0:
                    empty.unlink()
                    sync_folder(folder)
        folder = self.places.folder(offset // self.file_size)
        return MappedFile.create(folder, offset, self.file_size, self._warm_pages)

    def make_ahead(self) -> None:
        """Create the file for the next ``append_file`` in a background thread."""
        if self._ahead is None:
            self._ahead = _AheadOfTime(self._create)
        self._ahead.request(self.end_offset())

    def truncate(self, offset: int) -> None:
        """Set the end to ``offset``: delete later files, and set the positions of its file."""
        for start, file in reversed(list(self.by_start.items())):
            if start > offset or (start == offset and len(self.by_start) > 1):
                file.destroy()
                self._drop(start)
                self.sync()  # after each, so that a power failure leaves no gap
            elif start + self.file_size > offset:
                file.wrote_position = file.flushed_position = offset - start
        self.sync()

    def drop_all(self) -> None:
        """Delete all files, durably: they contain no record."""
        for start, file in list(self.by_start.items()):
            file.destroy()
            self._drop(start)
        self.sync()

    def _drop(self, start: int) -> None:
        self.by_start = {at: kept for at, kept in self.by_start.items() if at != start}
        with self._mapped_lock:
            self._mapped.pop(start, None)

    def sync(self) -> None:
        """Make the names of all files durable, and the removal of deleted ones."""
        with os_errors("sync the folder of the commit log", self.folder):
            for folder in self.folders:
                if is_dir(folder):
                    sync_folder(folder)

    def delete_before(self, offset: int) -> StoreIOError | None:
        """Delete the leading files that end at or before ``offset``, durably.

        The last file is never deleted. Readers are not disturbed: a file is freed with its last
        reader. Returns the error that kept a file from being deleted: it stays in the log, earlier
        files are gone.

        Raises:
            StoreIOError: files were deleted, but the deletion could not be synced.
        """
        size, fault = self.file_size, None
        for file in self.files()[:-1]:
            start = file.file_from_offset
            if start + size > offset:
                break
            try:
                file.hold_open()  # for readers that arrive between the next two steps
                file.unlink()
            except StoreIOError as exc:
                fault = exc
                break
            self._drop(start)
            self.sync()  # after each, so that a power failure leaves no gap
        return fault

    def close(self, *, keep_ahead: bool = False) -> None:
        """Close all files; delete an unused file that was created ahead, unless ``keep_ahead``."""
        try:
            if self._ahead is not None:
                self._ahead.close(keep=keep_ahead)
        finally:
            for file in self.by_start.values():
                file.close()

    def __iter__(self) -> Iterator[MappedFile]:
        return iter(self.files())


class _AheadOfTime:
    """Creates one file ahead in its own thread, so that a roll does not wait for it.

    Errors are ignored here: the append then creates the file itself and gets the same error.
    """

    def __init__(self, create: Callable[[int], MappedFile]) -> None:
        self._create = create
        self._thread: StoreThread | None = None
        self._made: MappedFile | None = None
        self._offset = -1

    def request(self, offset: int) -> None:
        if offset != self._offset:
            self._offset = offset
            self._thread = StoreThread("cqstore-allocate", partial(self._make, offset))
            self._thread.start()

    def _make(self, offset: int) -> None:
        try:
            self._made = self._create(offset)
        except BaseException as exc:  # noqa: BLE001 - nothing hangs on it, see above
            _LOG.info("cannot create the next commit log file in advance: %s", exc)
            self._made = None

    def pop(self, offset: int) -> MappedFile | None:
        self._join()
        made, self._made = self._made, None
        if made is not None and made.file_from_offset != offset:
            made.destroy()
            return None
        return made

    def close(self, *, keep: bool) -> None:
        self._join()
        if self._made is not None and keep:
            self._made.close()
        elif self._made is not None:
            self._made.destroy(missing_ok=True)  # left by an interrupted close
            self._made = None

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
