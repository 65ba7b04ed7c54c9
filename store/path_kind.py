"""Whether a path exists, the kind of its file, and the content of a folder.

Since CPython 3.14, ``Path.exists``, ``is_dir``, ``is_file`` and ``is_symlink`` return ``False`` for
any error of the system, and since 3.13 ``Path.glob`` finds nothing: a folder without search
permission, or a disk that fails, would look like a store without that file. These functions raise
the error, and find nothing only if nothing exists.
"""

import errno
import os
import stat
from collections.abc import Iterator
from fnmatch import filter as matching_names
from pathlib import Path

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP}


def exists(path: Path | str) -> bool:
    """Return whether ``path`` leads to something; links are followed.

    Raises:
        OSError: the status cannot be read.
    """
    return _mode(path) != 0


def is_dir(path: Path | str) -> bool:
    """Return whether ``path`` leads to a folder; links are followed.

    Raises:
        OSError: the status cannot be read.
    """
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path | str) -> bool:
    """Return whether ``path`` leads to a regular file; links are followed.

    Raises:
        OSError: the status cannot be read.
    """
    return stat.S_ISREG(_mode(path))


def is_symlink(path: Path | str) -> bool:
    """Return whether ``path`` itself is a link.

    Raises:
        OSError: the status cannot be read.
    """
    return stat.S_ISLNK(_mode(path, follow_symlinks=False))


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the paths in ``folder`` that match ``pattern``, sorted; empty without a folder.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - as tests refuse it
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(matching_names(names, pattern))]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the regular files in ``folder`` and below; links to folders are not followed.

    Raises:
        OSError: a folder cannot be listed.
    """

    def fail(exc: OSError) -> None:
        raise exc

    for above, _, names in os.walk(folder, onerror=fail):
        yield from (path for name in names if is_file(path := Path(above, name)))


def _mode(path: Path | str, *, follow_symlinks: bool = True) -> int:
    """Return type and permissions, 0 if the path does not exist."""
    try:
        return os.stat(path, follow_symlinks=follow_symlinks).st_mode  # noqa: PTH116 - as tests refuse it
    except OSError as exc:
        if exc.errno not in _ABSENT:
            raise
    except ValueError:  # a NUL in the path
        pass
    return 0
