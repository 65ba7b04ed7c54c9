"""The files of a commit log that other processes may write, as they are when listed."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import is_file_name
from cqstore.store.path_kind import is_dir

_TRIES = 100
"""Maximum number of times that several folders are listed again, while a writer changes them."""
LogFiles = dict[int, tuple[Path, int]]
"""Phy offset at which a file begins → its path and its length."""


def log_file_paths(folders: Iterable[Path], *, missing_ok: bool = False) -> list[Path]:
    """Return the paths in ``folders`` with the name of a log file, the oldest first.

    All of them were there at one moment, although a writer adds and removes files.

    Raises:
        CorruptionError: two folders have a file of one name.
        StoreIOError: a folder cannot be listed, or does not exist and ``missing_ok`` is false.
    """
    places = [*folders]
    found = _listed(places, missing_ok=missing_ok)
    for _ in range(_TRIES if len(places) > 1 else 0):
        before, found = found, _listed(places, missing_ok=missing_ok)
        if found == before:  # nothing changed between the two passes over the folders
            break
    for one, other in pairwise(found):
        if one.name == other.name:
            raise CorruptionError(
                "a commit log file is in two folders, so it is unknown which one has the records;"
                " compare the files and move one away",
                path=other, expected=f"no file {other.name}", got=f"a file as in {one.parent}",
            )  # fmt: skip
    return found


def _listed(folders: Iterable[Path], *, missing_ok: bool) -> list[Path]:
    """Return the paths in one folder after the other, the oldest first."""
    found: list[Path] = []
    for folder in folders:
        with os_errors("list the commit log", folder):
            if is_dir(folder) or not missing_ok:
                found += [path for path in folder.iterdir() if is_file_name(path.name)]
    return sorted(found, key=lambda path: (path.name, path))


def foreign_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files in ``folders`` that do not have the name of a log file, sorted by name.

    RocketMQ ignores folders, and refuses a log with any other file that is not its own.

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

    A missing folder has no files. An empty file is being created and is ignored; a file that
    expires meanwhile may be missing.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    found: LogFiles = {}
    for path in log_file_paths(folders, missing_ok=True):
        with os_errors("list the commit log", path.parent), suppress(FileNotFoundError):
            length = path.stat().st_size  # it has just expired
            if length:
                found[int(path.name)] = path, length
    return found


def log_file_at(files: LogFiles, phy_offset: int) -> tuple[int, Path, int] | None:
    """Return start, path and length of the file that contains ``phy_offset``, or ``None``."""
    for begin in reversed(files):
        path, length = files[begin]
        if begin <= phy_offset < begin + length:
            return begin, path, length
    return None


def newest_files_missing(end: int, newest: int) -> str:
    """Return a sentence about queues with records after the last file of a log in several folders.

    ``end``: where that file ends; ``newest``: the phy offset that the queues have.
    """
    return (
        f"The files of the commit log end at {end}, but the queues have records up to {newest}:"
        " check whether a folder of storePathCommitLog is not mounted, or not named"
    )
