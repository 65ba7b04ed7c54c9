"""Obstacles: damage that prevents opening a store, and a read-only view that bypasses it.

Examples are a truncated log file, or queues whose database RocksDB refuses. ``passed`` creates a
private folder of links in which each is mended, so that a check finds later damage; ``clear`` mends
the log file of a store to be repaired.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    QueueGapError,
    RefusedStoreError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.journals.store_lock import StoreLock, mark_open
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.store_copy import copy_file
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import StoreConfig


class ObstacleKind(Enum):
    """Kinds of damage that prevent opening the store; the value is the repair."""

    LOG_FILE = "extend the file with zeros: the bytes that were cut off are lost"
    QUEUES = (
        "rebuild all queues from the log; a queue without a record in the log restarts at offset 0"
    )
    QUEUE_FILE = "exclude the file, and rebuild all queues from the log"


OF_QUEUES = {ObstacleKind.QUEUES, ObstacleKind.QUEUE_FILE}
"""Kinds that a rebuild of all queues mends."""
_PRIVATE = "store"
"""Name of the private folder of a check, whatever the store's name is: that may be ``.``."""
_MAX_QUEUE_FILES = 64
"""Limit of queue files that are left out one by one; if there are more, all queues are."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Damage that prevents opening a store; ``path`` is in the store itself."""

    kind: ObstacleKind
    problem: str
    path: Path
    phy_offset: int | None = None
    """The end of a log file."""
    position: int | None = None
    """Position in the file; for a truncated file, its end."""
    expected: object = None
    found: object = None


def find_obstacles(layout: StoreLayout, config: StoreConfig) -> list[Obstacle]:
    """Return the obstacles in the log; ``config`` has the size of its files.

    That a log file was truncated is certain only if another one was not: otherwise the settings may
    be wrong.

    Raises:
        StoreError: a file cannot be read, or is damaged in another way.
    """
    return list(_cut_files(layout, config.mapped_file_size_commit_log))


def of_queues(
    layout: StoreLayout, known: Sequence[Obstacle], exc: CorruptionError
) -> Obstacle | None:
    """Return the obstacle of queues that could not be loaded because of ``exc``.

    ``None``: the error is of something else, or the ``known`` obstacles should have avoided it. A
    queue file was certainly truncated if its error is a ``TruncatedRecordError``: otherwise the
    settings may be wrong.
    """
    kind, left_out = ObstacleKind.QUEUE_FILE, {each.path for each in known}
    if isinstance(exc, ConsumeQueueError | QueueGapError) or len(left_out) >= _MAX_QUEUE_FILES:
        kind = ObstacleKind.QUEUES
    elif exc.path is None or exc.path in left_out or not isinstance(exc, TruncatedRecordError):
        return None
    folders = _queue_folders(layout)
    path = exc.path or layout.paths.consume_queue
    if not any(path.is_relative_to(folder) for folder in folders):
        return None
    if any(each.kind is ObstacleKind.QUEUES for each in known):
        return None
    return Obstacle(kind, exc.reason, path, exc.phy_offset, exc.position, exc.expected, exc.got)


def _queue_folders(layout: StoreLayout) -> set[Path]:
    return {path for name in layout.backends for path in backend(name).folders(layout.paths)}


def _cut_files(layout: StoreLayout, size: int) -> Iterator[Obstacle]:
    """Yield truncated log files, if all are consecutive and others have ``size`` bytes."""
    if not all(map(is_dir, layout.log_folders)):
        return
    with os_errors("list the commit log", layout.log_folders[0]):
        try:
            paths = log_file_paths(layout.log_folders)
            sizes = [path.stat().st_size if is_file(path) else -1 for path in paths]
        except FileNotFoundError:  # a writer is deleting files: none is known to be truncated
            return
    starts = [int(path.name) for path in paths]
    in_a_row = all(start == starts[0] + at * size for at, start in enumerate(starts))
    if not starts or starts[0] % size or not in_a_row or size not in sizes or max(sizes) > size:
        return
    for path, start, length in zip(paths, starts, sizes, strict=True):
        if 0 <= length < size and not (length == 0 and path == paths[-1]):
            problem = f"the log file is truncated: expected {size} bytes, found {length} bytes"
            yield Obstacle(
                ObstacleKind.LOG_FILE, problem, path, start + length, length, size, length
            )


@contextmanager
def passed(
    layout: StoreLayout, config: StoreConfig, obstacles: Sequence[Obstacle]
) -> Iterator[StorePaths]:
    """Yield the paths of a folder that can be opened read-only; without obstacles the store's own.

    Copies the truncated log files, and links the rest.

    Raises:
        StoreIOError: the folder cannot be created.
    """
    if not obstacles:
        yield layout.paths
        return
    left_out = {*layout.log_folders, layout.paths.root / "commitlog", layout.paths.log_paths}
    for obstacle in obstacles:
        if obstacle.kind is ObstacleKind.QUEUE_FILE:
            left_out.add(obstacle.path)
        elif obstacle.kind is ObstacleKind.QUEUES:
            left_out |= _queue_folders(layout)
    cut = {obstacle.path for obstacle in obstacles if obstacle.kind is ObstacleKind.LOG_FILE}
    with os_errors("create a private folder to check the store", layout.paths.root):
        folder = Path(tempfile.mkdtemp(prefix="cqstore-check-"))
    try:
        with os_errors("create a private folder to check the store", layout.paths.root):
            _link_all_but(left_out, layout.paths.root, folder / _PRIVATE)
            log = folder / _PRIVATE / "commitlog"
            log.mkdir()
            for path in chain.from_iterable(each.iterdir() for each in layout.log_folders):
                if path in cut:
                    copy_file(str(path), str(log / path.name))
                    os.truncate(log / path.name, config.mapped_file_size_commit_log)
                else:
                    (log / path.name).symlink_to(path.absolute())
        yield StorePaths(log.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_all_but(left_out: Collection[Path], source: Path, target: Path) -> None:
    """Create ``target`` as a folder of links to the entries of ``source``, except ``left_out``."""
    target.mkdir()
    above = {folder for path in left_out for folder in path.parents}
    for path in source.iterdir():
        if path in above:
            _link_all_but(left_out, path, target / path.name)
        elif path not in left_out:
            (target / path.name).symlink_to(path.absolute())


def clear(layout: StoreLayout, file_size: int, obstacles: Sequence[Obstacle]) -> None:
    """Mend the log files of the store; after an interruption it is repeated.

    ``file_size``: bytes of a complete log file.

    Raises:
        RefusedStoreError: a file is not in the store, or in a folder of its log that it may write
            to; nothing was done.
        StoreLockedError: a process has the store open.
        StoreIOError: a file cannot be written.
    """
    paths, root = layout.paths, layout.paths.root
    places = [root, *([] if layout.refusals else layout.log_folders)]
    for obstacle in obstacles:
        path = obstacle.path
        if not any(map(path.is_relative_to, places)) and obstacle.kind not in OF_QUEUES:
            raise RefusedStoreError("cannot repair a file outside the store", path=path)
    with StoreLock(paths), os_errors("repair the store", root):
        if obstacles and not exists(paths.abort):
            mark_open(paths)  # the record of a clean stop is no longer valid
        for obstacle in obstacles:
            if obstacle.kind is ObstacleKind.LOG_FILE:
                _fill_up(obstacle.path, file_size)


def _fill_up(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        if os.fstat(file.fileno()).st_size < size:
            file.truncate(size)
            os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class OpenedPast:
    """A store that was opened read-only in spite of its obstacles."""

    store: MessageStore
    obstacles: list[Obstacle]
    layout: StoreLayout
    """Layout of the store itself; that of ``store`` may be of a private folder."""

    @property
    def has_queues(self) -> bool:
        """Return whether its queues could be loaded."""
        return all(obstacle.kind is not ObstacleKind.QUEUES for obstacle in self.obstacles)

    def named(self, text: str) -> str:
        """Return ``text`` with paths of the store itself."""
        return _own_paths(text, self.store.root, self.layout)


@contextmanager
def open_past(root: Path, config: StoreConfig, backend_name: str | None) -> Iterator[OpenedPast]:
    """Open a store read-only, bypassing its obstacles. Changes nothing.

    Raises:
        StoreError: as for ``MessageStore.open``, for other problems than obstacles.
    """
    layout, sized = resolve_layout(root, config, read_only=True)
    obstacles = find_obstacles(layout, sized)
    with ExitStack() as stack:
        store = None
        while store is None:
            paths = stack.enter_context(passed(layout, sized, obstacles))
            try:
                store = _open(
                    paths, _in_default_folder(sized) if obstacles else config, backend_name
                )
            except CorruptionError as exc:
                exc.reason = _own_paths(exc.reason, paths.root, layout)
                exc.path = exc.path and Path(_own_paths(str(exc.path), paths.root, layout))
                if (found := of_queues(layout, obstacles, exc)) is None:
                    raise
                obstacles.append(found)
                if found.kind is ObstacleKind.QUEUES:
                    backend_name = None
        with store:
            yield OpenedPast(store, obstacles, layout)


def _own_paths(text: str, private: Path, layout: StoreLayout) -> str:
    """Replace the paths of the private folder in ``text`` by the store's own."""
    if private != layout.paths.root and not layout.log_paths.is_default:
        for path in log_file_paths(layout.log_folders, missing_ok=True):
            text = text.replace(str(private / "commitlog" / path.name), str(path))
    return text.replace(str(private), str(layout.paths.root))


def _in_default_folder(config: StoreConfig) -> StoreConfig:
    """Return the settings of the private folder, which has the log in its default place."""
    return config.model_copy(update={"store_path_commit_log": None})


def _open(paths: StorePaths, config: StoreConfig, backend_name: str | None) -> MessageStore:
    """Open the store read-only."""
    options = OpenOptions(read_only=True, backend=backend_name, housekeeping=False)
    return open_served(MessageStore, paths.root, config, options)
