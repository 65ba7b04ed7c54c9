"""FileBulk: writes whole queues as files, then moves them into the store by renames.

A sink's folder contains ``TOPIC/QUEUEID/N``, like ``consumequeue``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from cqstore.cq_file.bulk_source import FileUnitSource
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.descriptor_cache import DescriptorCache, descriptor_limit
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.known_ends import ends_path
from cqstore.cq_file.layout import FILE_UNIT, PRE_BLANK
from cqstore.cq_file.listing import check_folder_name, entries, sub_folders
from cqstore.cq_file.queue_files import FileAccess
from cqstore.store.errors import IllegalMessageError, os_errors
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import (
    DiskUse,
    NameFault,
    QueueTotals,
    UnitRows,
    UnitSource,
    row_table,
)
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig

_UNIT = FILE_UNIT.size
_BLOCK_BYTES = 4096
"""Block size of the file system, the minimum size of a file or folder."""
_NO_FOLDER = NameFault(
    "name-no-folder",
    "Queue files need topic names that are valid folder names: '/', NUL, '.' and '..' are not "
    "allowed, and a name has at most 255 bytes.",
    by_length=True,
)


class FileBulk:
    """The file side of a move, see ``BulkBackend``: queues are read, written, and put in place."""

    name: ClassVar[str] = "file"
    keeps_timestamps: ClassVar[bool] = False
    needs_whole_queues: ClassVar[bool] = False

    def name_faults(self, topic: str, config: StoreConfig) -> Iterator[NameFault]:
        """Yield a fault if the topic name is not a valid folder name."""
        _ = config
        try:
            check_folder_name(topic)
        except IllegalMessageError:
            yield _NO_FOLDER

    def footprint(self, totals: QueueTotals) -> DiskUse:
        """Return the estimated disk use: the units, and a partial block per file and folder."""
        entries = totals.files + totals.queues + totals.topics
        return DiskUse(
            disk_bytes=totals.units * _UNIT + entries * _BLOCK_BYTES,
            entries=entries,
            mapped_files=totals.files,
            apparent_bytes=totals.files * totals.units_per_file * _UNIT,
        )

    def source(self, context: QueueStoreContext) -> UnitSource:
        """Return the file queues of a store as a source; no file is opened yet."""
        return FileUnitSource(context)

    def sink(self, folder: Path, config: StoreConfig) -> "FileUnitSink":
        """Return a sink that writes queues as files below ``folder``."""
        return FileUnitSink(folder, config)

    def slice_units(self, config: StoreConfig) -> int:
        """Return the number of units per file, so that no two sinks write the same file."""
        return config.units_per_file

    def check_queue(self, queue: QueueKey) -> None:
        """Refuse topics whose name is not a valid folder name.

        Raises:
            IllegalMessageError: the name is not valid.
        """
        try:
            check_folder_name(queue.topic)
        except IllegalMessageError as exc:
            raise IllegalMessageError(f"queue {queue.queue_id}: {exc.reason}") from exc

    def assemble(
        self, parts: Sequence[Path], paths: StorePaths, config: StoreConfig, phy_offset: int
    ) -> None:
        """Move the folders into one; if two sinks share a queue, move its files one by one."""
        _ = config, phy_offset
        target = paths.consume_queue
        with os_errors("combine the queue files", target):
            make_folder(target)
            for part in parts:
                for topic in sub_folders(str(part)):
                    _move_in(Path(topic.path), target / topic.name)
            sync_folder(target)

    def publish(self, made: StorePaths, paths: StorePaths, config: StoreConfig) -> None:
        """Move the topics' folders into ``consumequeue``."""
        _ = config
        target = paths.consume_queue
        with os_errors("publish the file queues", target):
            make_folder(target)
            for topic in sub_folders(str(made.consume_queue)):
                _move_in(Path(topic.path), target / topic.name)
            sync_folder(target)

    def withdraw(self, paths: StorePaths, folder: Path, prefix: str = "") -> None:
        """Remove the saved ends of the queues, then move the topics' folders to ``folder``.

        With a ``prefix``, only the folders whose names begin with it are moved.
        """
        with os_errors("move the file queues away", paths.consume_queue):
            ends_path(paths).unlink(missing_ok=True)
            topics = sub_folders(str(paths.consume_queue))
            topics = [topic for topic in topics if topic.name.startswith(prefix)]
            if not topics:
                return
            make_folder(folder / paths.consume_queue.name)
            for topic in topics:
                Path(topic.path).rename(folder / paths.consume_queue.name / topic.name)
            sync_folder(paths.consume_queue)
            sync_folder(folder / paths.consume_queue.name)


class FileUnitSink:
    """Writes whole queues as files below one folder, see ``UnitSink``."""

    def __init__(self, folder: Path, config: StoreConfig) -> None:
        self._per_file = config.units_per_file
        self._unsynced = UnsyncedFiles()
        self._cache = DescriptorCache(descriptor_limit(config.queue_files_max), read_only=False)
        self._access = FileAccess(str(folder), self._per_file * _UNIT, self._cache, self._unsynced)
        self._queue: tuple[QueueKey, FileConsumeQueue] | None = None
        self._bytes = 0

    def add(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> None:
        """Append; a first file begins with pre-blanks up to the first unit."""
        if not len(rows):
            return
        data = row_table(rows)[:, :_UNIT].tobytes()
        blanks = 0
        if self._queue is None or self._queue[0] != queue:
            self._queue = (queue, self._new(queue))
            blanks = queue_offset % self._per_file
        self._queue[1].write((queue_offset - blanks) * _UNIT, PRE_BLANK * blanks + data)
        self._bytes += len(data) + blanks * _UNIT

    def end(self, queue: QueueKey, queue_offset: int) -> None:
        """Write pre-blanks up to the end of a queue whose units have all expired."""
        if self._queue is None or self._queue[0] != queue:
            self._new(queue).begin_at(queue_offset)

    def _new(self, queue: QueueKey) -> FileConsumeQueue:
        return FileConsumeQueue(self._access, *queue, [])

    def finish(self) -> int:
        """Sync the written files and folders; return the size of the files in bytes."""
        self._unsynced.sync(self._cache)
        self._cache.close()
        return self._bytes

    def abandon(self) -> None:
        """Close the files without a sync; the caller removes the folder."""
        self._cache.close()


def _move_in(source: Path, target: Path) -> None:
    """Move a folder, or its contents if ``target`` exists already."""
    if not exists(target):
        source.rename(target)
        return
    for entry in entries(str(source)):
        if entry.is_dir():
            _move_in(Path(entry.path), target / entry.name)
        else:
            Path(entry.path).rename(target / entry.name)
    sync_folder(target)
