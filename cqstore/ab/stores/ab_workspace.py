"""The work folder of a comparison: one comparison at a time, removed afterwards.

The next comparison removes what a killed one left in it.
"""

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Self

from cqstore.store.errors import RefusedStoreError, StoreLockedError, os_errors
from cqstore.store.files import open_regular
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.service.layout.root_folder import refuse_in_store

_MARK = "cqstore-ab"
"""File that marks a work folder, locked during a comparison."""


class ScratchFolder:
    """Work folder that exists from ``__enter__`` to ``__exit__``."""

    def __init__(self, folder: Path) -> None:
        """Take the path of the folder; nothing is touched before ``__enter__``."""
        self.folder = folder
        self._fd = -1

    def check(self, root: Path | None = None) -> None:
        """Refuse a folder with other files, in a store, or around the compared store ``root``.

        Raises:
            RefusedStoreError: the folder is one of these.
            StoreIOError: the folder cannot be read.
        """
        refuse_in_store(self.folder, "work folder", *([] if root is None else [root]))
        with os_errors("read the work folder", self.folder):
            if root is not None and root.resolve().is_relative_to(self.folder.resolve()):
                raise RefusedStoreError(
                    "the work folder must not contain the store (--work)",
                    path=self.folder,
                )
            there = list(self.folder.iterdir()) if is_dir(self.folder) else []
            ours = any(path.name == _MARK for path in there)
            if (there and not ours) or (exists(self.folder) and not is_dir(self.folder)):
                raise RefusedStoreError(
                    "the work folder contains other files: choose another folder (--work)",
                    path=self.folder,
                )

    def __enter__(self) -> Self:
        """Create the folder, empty, and lock it.

        Raises:
            StoreLockedError: another comparison is using the folder.
            StoreIOError: the folder cannot be created.
        """
        with os_errors("create the work folder", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._fd = open_regular(self.folder / _MARK, os.O_RDWR | os.O_CREAT)
            try:
                self._take()
            except BaseException:
                os.close(self._fd)
                raise
        return self

    def _take(self) -> None:
        """Lock the folder, and remove the files of a killed run.

        Raises:
            StoreLockedError: another comparison is using the folder.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
            raise StoreLockedError(
                "another comparison is using this work folder", path=self.folder
            ) from exc
        for path in self.folder.iterdir():
            if is_dir(path):
                shutil.rmtree(path)
            elif path.name != _MARK:
                path.unlink()

    def __exit__(self, *_: object) -> None:
        """Remove the folder, its mark last: after a kill it is still known as a work folder."""
        for path in self.folder.iterdir():
            if is_dir(path):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _MARK:
                with suppress(OSError):
                    path.unlink()
        with suppress(OSError):
            (self.folder / _MARK).unlink()
            self.folder.rmdir()
        os.close(self._fd)
