"""StoreWatch: metrics from the files of a store while another process has it open.

It reads names, sizes, the checkpoint, ``abort``, a follower's note, the offsets of delay levels and
the heads of log records. It takes no lock and never opens the file ``lock``: closing that would
release the lock of a store that this process has open. Nothing is written.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import bytes_on_disk, reading
from cqstore.store.journals.following import Following, read_following
from cqstore.store.log.checkpoint import CheckpointFields, StoreCheckpoint
from cqstore.store.log.foreign_log_tail import ForeignLogTail, LogEnds
from cqstore.store.log.tail_topics import TailTopics, TopicTraffic
from cqstore.store.path_kind import is_dir
from cqstore.store.queue.backends import backends, queue_folders
from cqstore.store.queue.facts import QueueStat
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.metrics.metrics import disk_used_ratio
from cqstore.store.service.scheduling.delay_offsets import DelayOffsets

_LOG = StoreLogger(__name__)

MAX_FILES = 20_000
"""Limit of counted files per folder; of a folder with more (file queues) only these are counted."""
_PID_DIGITS = 10


class FolderSize(NamedTuple):
    """The size of a folder, including its subfolders."""

    files: int
    disk_bytes: int
    """Size in allocated blocks."""
    whole: bool
    """False: there are more than ``MAX_FILES`` files."""


@dataclass(frozen=True, slots=True)
class WatchSample:
    """The result of one sample."""

    time: float
    """Seconds since the epoch."""
    seconds: float
    """Time of a monotonic clock, for rates between two samples."""
    opener: int | None
    """The process id in ``abort``, 0 if it has none; ``None``: the store is closed."""
    log: LogEnds | None
    checkpoint: CheckpointFields
    """All fields are zero if the file does not exist."""
    folders: dict[str, FolderSize]
    """By name; of queues and index only existing ones."""
    log_disk_used_ratio: float
    queue_disk_used_ratio: float
    queue_stats: tuple[QueueStat, ...]
    """Metrics from the backends' own files, see ``ConsumeQueueStore.watch``."""
    following: Following | None
    """Last note of a follower; ``None``: this store was never a follower's."""
    delay_offsets: Mapping[int, int] = field(default_factory=dict)
    """Delay level → next offset of its queue, as last written; empty without the file."""
    topics: Mapping[str, TopicTraffic] | None = None
    """Records since the previous sample, by topic; ``None`` unless requested.

    Empty in the first sample: the previous end of the log is unknown.
    """


class StoreWatch:
    """Samples one store repeatedly. One thread."""

    def __init__(self, layout: StoreLayout, *, by_topic: bool = False) -> None:
        """``by_topic``: count records by topic, which reads more than their heads."""
        self._layout = layout
        self._topics = TailTopics() if by_topic else None
        self._tail = ForeignLogTail(layout.log_folders, self._topics)
        self._delay_offsets: Mapping[int, int] = {}
        self._has_looked = False

    def sample(self) -> WatchSample:
        """Return the current state of the files.

        Raises:
            StoreIOError: a file cannot be read.
            CorruptionError: the checkpoint is not a regular file.
        """
        layout, paths = self._layout, self._layout.paths
        checkpoint = StoreCheckpoint(paths.checkpoint).fields
        folders = (*queue_folders(paths), paths.index)
        log = self._tail.refresh(checkpoint.confirm_phy_offset)
        traffic = None if self._topics is None else self._topics.take()
        is_first, self._has_looked = not self._has_looked, True
        return WatchSample(
            time=time.time(),
            seconds=time.monotonic(),
            opener=_opener(paths.abort),
            log=log,
            checkpoint=checkpoint,
            folders={folder.name: measure(folder) for folder in folders if is_dir(folder)},
            log_disk_used_ratio=disk_used_ratio(*layout.log_paths.measured),
            queue_disk_used_ratio=disk_used_ratio(paths.consume_queue),
            queue_stats=tuple(stat for kind in backends() for stat in kind.watch(paths)),
            following=self._read_following(),
            delay_offsets=self._read_delay_offsets(),
            topics=None if is_first else traffic,
        )

    def _read_following(self) -> Following | None:
        """Return the last note of a follower; ``None`` while it is damaged."""
        try:
            return read_following(self._layout.paths)
        except CorruptionError as exc:
            _LOG.warning("%s", exc)
            return None

    def _read_delay_offsets(self) -> Mapping[int, int]:
        """Return the content of the file; while a broker writes it in place, the previous one."""
        with suppress(CorruptionError):
            self._delay_offsets = DelayOffsets(self._layout.paths.delay_offset).read()
        return self._delay_offsets


def measure(folder: Path, limit: int = MAX_FILES) -> FolderSize:
    """Return the size of ``folder``; files that are removed meanwhile do not count.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    files = disk_bytes = 0
    with os_errors("measure", folder):
        for path in _files(folder):
            if files == limit:
                return FolderSize(files, disk_bytes, whole=False)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            files += 1
            disk_bytes += bytes_on_disk(status)
    return FolderSize(files, disk_bytes, whole=True)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below ``folder``; folders that are removed meanwhile are skipped."""
    waiting = [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        yield Path(entry.path)
        except FileNotFoundError:
            continue


def _opener(abort: Path) -> int | None:
    """Return the process id in the abort marker; ``None`` without the file, 0 if it has no id."""
    with os_errors("read the abort marker", abort):
        try:
            with reading(abort) as file:
                text = file.read(_PID_DIGITS + 1).strip()
        except FileNotFoundError:
            return None
    return int(text) if text.isdigit() and len(text) <= _PID_DIGITS else 0
