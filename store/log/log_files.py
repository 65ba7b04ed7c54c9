"""The files of a commit log that others may write, as they are at the moment of a look."""

from collections.abc import Sequence
from pathlib import Path

from store.errors import os_errors
from store.files import is_file_name

LogFiles = dict[int, tuple[Path, int]]
"""Phy offset at which a file begins → the file and its length."""


def list_log_files(folders: Sequence[Path]) -> LogFiles:
    """Return the files of the log in ``folders``, the oldest first.

    A folder that is not there has none. An empty file is being made, and does not count; one that
    expires meanwhile may be missing.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    found: LogFiles = {}
    for folder in folders:
        with os_errors("list the commit log", folder):
            for path in folder.iterdir() if folder.is_dir() else ():
                if not is_file_name(path.name):
                    continue
                try:
                    length = path.stat().st_size
                except FileNotFoundError:  # it has just expired
                    continue
                if length:
                    found[int(path.name)] = path, length
    return dict(sorted(found.items()))


def log_file_at(files: LogFiles, phy_offset: int) -> tuple[int, Path, int] | None:
    """Return begin, path and length of the file that holds ``phy_offset``; ``None``: none does."""
    for begin in reversed(files):
        path, length = files[begin]
        if begin <= phy_offset < begin + length:
            return begin, path, length
    return None
