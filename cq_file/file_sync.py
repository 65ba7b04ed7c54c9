"""Which queue files and folders the disk may not have yet, and bringing them there.

Exact: a file is noted before its bytes change and crossed off after a successful sync, so a sync
touches what changed and nothing else. Only the store's writer uses these objects.
"""

import ctypes
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from cq_file.descriptor_cache import DescriptorCache
from store.errors import os_errors

_SYNCFS_FROM = 64
"""Files from which one ``syncfs`` is cheaper than a journal commit for each of them."""
_SYNCFS_REPORTS = (5, 8)
"""Linux release since which ``syncfs`` reports pages that could not be written."""


def _find_syncfs() -> Callable[[int], int] | None:
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if os.uname().sysname != "Linux" or release is None:
        return None
    if (int(release[1]), int(release[2])) < _SYNCFS_REPORTS:
        return None
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return found


class UnsyncedFiles:
    """Paths of changed files, and of folders that gained or lost an entry."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()
        self._syncfs = _find_syncfs()

    def forget(self, path: str) -> None:
        """Cross off a file that was unlinked."""
        self.files.discard(path)

    def forget_folder(self, folder: str) -> None:
        """Cross off a folder that was removed with everything below it."""
        below = folder + os.sep
        self.files = {path for path in self.files if not path.startswith(below)}
        self.folders = {
            path for path in self.folders if path != folder and not path.startswith(below)
        }

    def remove_folder(self, folder: Path) -> None:
        """Remove a topic's folder, if there is one, durably, and cross off what lay in it.

        Raises:
            StoreIOError: the disk refused.
        """
        if not folder.is_dir():
            return
        with os_errors("remove the folder of a topic", folder):
            shutil.rmtree(folder)
        self.forget_folder(str(folder))
        sync_folder(str(folder.parent))

    def sync(self, cache: DescriptorCache) -> None:
        """Make every noted file and folder durable. On failure all of them stay noted.

        Raises:
            StoreIOError: the disk refused.
        """
        if len(self.files) >= _SYNCFS_FROM and self._syncfs is not None:
            self._sync_file_system(self._syncfs, next(iter(self.files)), cache)
        else:
            for path in self.files:
                with os_errors("flush a queue file", Path(path)):
                    descriptor = cache.get(path)
                    os.fdatasync(descriptor.fd)
            # Entries come after the bytes that they lead to.
            for folder in self.folders:
                sync_folder(folder)
        self.files.clear()
        self.folders.clear()

    @staticmethod
    def _sync_file_system(syncfs: Callable[[int], int], path: str, cache: DescriptorCache) -> None:
        with os_errors("flush the queues' file system", Path(path)):
            descriptor = cache.get(path)
            if syncfs(descriptor.fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))


def sync_folder(folder: str) -> None:
    """Make a folder's entries durable.

    Raises:
        StoreIOError: the disk refused, or the folder is gone.
    """
    with os_errors("flush a queue folder", Path(folder)):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
