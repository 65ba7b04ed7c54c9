"""LogFileMaps: the files of a log by phy offset, for reading many positions at once."""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import StoreIOError, os_errors
from cqstore.store.files import check_regular
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.log.mapped_file import MappedFile

_MAPS = 64


class LogFileMaps:
    """The current files of a log, opened on first use, a limited number at a time. One thread."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """List the files in ``folders``; no file is opened yet.

        Raises:
            StoreIOError: a folder does not exist, or cannot be listed.
        """
        self._paths = log_file_paths(folders)
        self._starts = np.array([int(path.name) for path in self._paths], np.int64)
        self._files: OrderedDict[int, MappedFile] = OrderedDict()

    def numbers(self, phy_offset: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the last file that starts at or before each offset; -1: none does.

        The oldest file is number 0.
        """
        return np.searchsorted(self._starts, phy_offset, "right") - 1

    def file(self, number: int) -> MappedFile:
        """Return a file by its number.

        An open file stays readable after another process has deleted it, until the limit of open
        files is reached by others.

        Raises:
            CorruptionError: it is not a regular file.
            StoreIOError: the file cannot be opened, or was deleted since the files were listed.
        """
        file = self._files.get(number)
        if file is not None:
            self._files.move_to_end(number)
            return file
        path = self._paths[number]
        with os_errors("read the commit log", path):
            try:
                check_regular(path)
                file = MappedFile(path, path.stat().st_size, read_only=True, on_missing=self._gone)
            except FileNotFoundError:
                self._gone(int(path.name))
        while len(self._files) >= _MAPS:
            self._files.popitem(last=False)
        self._files[number] = file
        return file

    def _gone(self, file_from_offset: int) -> NoReturn:
        raise StoreIOError(
            "cannot read the commit log: this file was deleted after the log was listed. If another"
            " process expires files, try again",
            path=self._paths[int(np.searchsorted(self._starts, file_from_offset))],
        )
