"""Tracks changed queue files and folders, and syncs them.

Exact: a file is added after its bytes have changed and before that is reported to any caller, and
removed after a successful sync. So a sync touches only what changed. A file must not be added
before the change: a sync in between would remove it, and the bytes written later would stay
unsynced.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from cqstore.cq_file._append import add_sizes
from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.errors import os_errors
from cqstore.store.files import find_syncfs, sync_file_system, sync_folder
from cqstore.store.path_kind import is_dir

_SYNCFS_FROM = 64
"""Number of files above which one ``syncfs`` is cheaper than a journal commit per file."""
_MAX_THREADS = 8
"""Maximum number of threads that remove files and folders; one more per this many items:"""
_ITEMS_A_THREAD = 16
T = TypeVar("T")


class UnsyncedFiles:
    """Paths of changed files, and of folders that gained or lost an entry.

    The store's writer adds paths; any other thread may sync them at the same time.
    """

    def __init__(self) -> None:
        # Guards ``_files`` and ``_folders``; not held during disk operations.
        self._lock = CheckedLock("an update of the list of changed queue files")
        # One sync at a time: a sync must also wait for files that another one has taken.
        self._sync_lock = CheckedLock("a flush of the queues")
        self._files: dict[str, int] = {}
        self._folders: set[str] = set()
        self._taken: tuple[dict[str, int], set[str]] = {}, set()  # taken by a sync until it is done
        self._syncfs = find_syncfs()

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return the locks that a thread must not hold when it adds paths or syncs."""
        return self._sync_lock, self._lock

    @property
    def files(self) -> frozenset[str]:
        """Return the changed files."""
        with self._lock.entry():
            return frozenset({*self._files, *self._taken[0]})

    @property
    def folders(self) -> frozenset[str]:
        """Return the changed folders."""
        with self._lock.entry():
            return frozenset(self._folders | self._taken[1])

    def note_file(self, path: str, size: int) -> None:
        """Record that ``size`` bytes of a file have changed."""
        with self._lock.entry():
            self._files[path] = self._files.get(path, 0) + size

    def note_files(self, paths: list[str], sizes: list[int]) -> None:
        """Record files that have changed, each with its number of changed bytes."""
        with self._lock.entry():
            add_sizes(self._files, paths, sizes)

    def note_folder(self, folder: str) -> None:
        """Record that a folder gained or lost an entry."""
        with self._lock.entry():
            self._folders.add(folder)

    def forget(self, path: str) -> None:
        """Remove a file that was unlinked."""
        with self._lock.entry():
            self._files.pop(path, None)

    def forget_folders(self, folders: Iterable[str]) -> None:
        """Remove folders that were deleted."""
        with self._lock.entry():
            self._folders.difference_update(folders)

    def sync(self, cache: DescriptorCache, min_bytes: int = 0) -> None:
        """Sync the paths that were added before the call. After a failure, all of them remain.

        ``min_bytes``: sync only files with at least this many changed bytes, and no folder.

        Raises:
            StoreIOError: an I/O operation failed.
        """
        with self._sync_lock.entry():
            self._sync_noted(cache, min_bytes)

    def _sync_noted(self, cache: DescriptorCache, min_bytes: int) -> None:
        """Sync the files with ``min_bytes`` or more unsynced; with 0 the folders, too."""
        with self._lock.entry():
            self._put_back()
            files = {path: size for path, size in self._files.items() if size >= min_bytes}
            folders = set() if min_bytes else self._folders.copy()
            self._taken = files, folders
            for path in files:
                del self._files[path]
            self._folders -= folders
        self._sync(files, folders, cache)
        self._taken = {}, set()

    def _put_back(self) -> None:
        """Add paths again whose sync failed or was interrupted."""
        files, folders = self._taken
        for path, size in files.items():
            self._files[path] = self._files.get(path, 0) + size
        self._folders |= folders
        self._taken = {}, set()

    def _sync(
        self, files: Collection[str], folders: Collection[str], cache: DescriptorCache
    ) -> None:
        """Make files and folder entries durable; many files by one call per file system."""
        if len(files) >= _SYNCFS_FROM and self._syncfs is not None:
            self._sync_file_system(self._syncfs, files, cache)
            return
        for path in files:
            with suppress(FileNotFoundError):  # just removed: its folder is recorded, too
                descriptor = cache.get(path)
                with os_errors("flush a queue file", path):
                    os.fdatasync(descriptor.number)
        # Folder entries after the bytes of the files.
        for folder in folders:
            with os_errors("flush a queue folder", folder), suppress(FileNotFoundError):
                sync_folder(folder)

    @staticmethod
    def _sync_file_system(
        syncfs: Callable[[int], int], files: Collection[str], cache: DescriptorCache
    ) -> None:
        """Sync the file system of these files."""
        for path in files:
            with suppress(FileNotFoundError):
                descriptor = cache.get(path)
                with os_errors("flush the queues' file system", path):
                    sync_file_system(syncfs, descriptor.number)
                return


def remove_folders(folders: Collection[Path]) -> None:
    """Remove folders that exist, with their contents, durably.

    Raises:
        StoreIOError: an I/O operation failed.
    """
    for_each(_remove_folder, folders)
    for parent in {folder.parent for folder in folders if is_dir(folder.parent)}:
        # Also if a folder did not exist: its removal may not be durable yet.
        with os_errors("flush a queue folder", parent):
            sync_folder(parent)


def for_each(work: Callable[[T], object], items: Collection[T]) -> None:
    """Call ``work``, which waits for the file system, for each of ``items`` in several threads.

    Raises:
        BaseException: the first exception of ``work``; items not yet started are skipped.
    """
    left, faults = deque(items), list[BaseException]()

    def run() -> None:
        while left and not faults:
            with suppress(IndexError):  # another thread has taken the last one
                item = left.popleft()
                try:
                    work(item)
                except BaseException as exc:  # noqa: BLE001 - raised below
                    faults.append(exc)

    others = min(len(items) // _ITEMS_A_THREAD, _MAX_THREADS - 1)
    threads = [StoreThread("cqstore-remove", run) for _ in range(others)]
    try:
        for thread in threads:
            thread.start()
        run()
    finally:
        left.clear()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]


def _remove_folder(folder: Path) -> None:
    if is_dir(folder):
        with os_errors("remove a queue folder", folder):
            shutil.rmtree(folder)
