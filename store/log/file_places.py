"""FilePlaces: the folder of each new file of a commit log.

Source: RocketMQ ``MultiPathMappedFileQueue.tryCreateMappedFile``.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path


class FilePlaces:
    """Assigns folders to new files in turn, by their number. Any thread."""

    def __init__(
        self, folders: Sequence[Path], full: Callable[[], Collection[Path]] = tuple
    ) -> None:
        """``folders``: those in which files may be created, in the order of their turns.

        ``full`` returns the folders on a disk that is too full: they are used only if all are.
        """
        self._folders, self._full = folders, full

    def folder(self, number: int) -> Path:
        """Return the folder for the file with this number, its start divided by the file size."""
        if len(self._folders) == 1:
            return self._folders[0]
        full = self._full()
        free = [folder for folder in self._folders if folder not in full] or self._folders
        return free[number % len(free)]
