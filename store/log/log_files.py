"""The files of a commit log that others may write, as they are at the moment of a look."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from cqstore.store.errors import os_errors
from cqstore.store.files import is_file_name
from cqstore.store.path_kind import is_dir

LogFiles = dict[int, tuple[Path, int]]
"""Phy offset at which a file begins → the file and its length."""


def log_file_paths(folders: Iterable[Path], *, missing_ok: bool = False) -> list[Path]:
    """Return what has the name of a log file in ``folders``, the oldest first.

    Raises:
        StoreIOError: a folder cannot be listed; or is not there, unless ``missing_ok``.
    """
    found: list[Path] = []
    for folder in folders:
        with os_errors("list the commit log", folder):
            if is_dir(folder) or not missing_ok:
                found += [path for path in folder.iterdir() if is_file_name(path.name)]
    return sorted(found, key=lambda path: path.name)


def foreign_files(folders: Iterable[Path]) -> list[Path]:
    """Return what is among the log files in ``folders`` and has not the name of one, by name.

    RocketMQ passes over folders, and refuses a log with any other file that is not its own.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    found: list[Path] = []
    for folder in folders:
        with os_errors("list the commit log", folder):
            if is_dir(folder):
                found += [path for path in folder.iterdir() if not is_file_name(path.name)]
                found = [path for path in found if not is_dir(path)]
    return sorted(found)


def list_log_files(folders: Iterable[Path]) -> LogFiles:
    """Return the files of the log in ``folders``, the oldest first.

    A folder that is not there has none. An empty file is being made, and does not count; one that
    expires meanwhile may be missing.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    found: LogFiles = {}
    for path in log_file_paths(folders, missing_ok=True):
        with os_errors("list the commit log", path.parent), suppress(FileNotFoundError):
            length = path.stat().st_size  # not there any more: it has just expired
            if length:
                found[int(path.name)] = path, length
    return found


def log_file_at(files: LogFiles, phy_offset: int) -> tuple[int, Path, int] | None:
    """Return begin, path and length of the file that holds ``phy_offset``; ``None``: none does."""
    for begin in reversed(files):
        path, length = files[begin]
        if begin <= phy_offset < begin + length:
            return begin, path, length
    return None
