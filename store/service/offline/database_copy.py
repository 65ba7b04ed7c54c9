"""A consistent copy of a RocksDB database that another process may be writing.

The MANIFEST lists the table files that are live. RocksDB adds one when it is complete, and never
changes it afterwards; it appends to the MANIFEST before it removes one. So a copy is consistent if
CURRENT, the MANIFEST and the list of write-ahead logs are the same before and after copying.
Otherwise new data is copied, and the list is compared again. A table that was copied before is
copied again if it has grown: it was not complete.

Source: RocksDB ``VersionSet::LogAndApply``, ``DBImpl::PurgeObsoleteFiles``.
"""

import re
from collections.abc import Callable
from pathlib import Path

from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import CorruptionError, StoreStateError
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists, is_file, matching
from cqstore.store.service.offline.store_copy import copy_file

_FILE = re.compile(r"CURRENT|IDENTITY|(MANIFEST|OPTIONS)-\d+|\d+\.(sst|log|blob)")
_LEFT_OUT = re.compile(r"LOCK|LOG(\.old\..*)?|\d+\.dbtmp")
"""Files that an opening creates again: its lock, its own log, unfinished files."""
_TABLE = re.compile(r"\d+\.(sst|blob)")
_MANIFEST = re.compile(rb"MANIFEST-\d{1,20}\n")
_CURRENT_BYTES = 64
_TRIES = 200

Place = Callable[[Path, Path], object]
"""Copies or links a table file."""


def is_database(folder: Path) -> bool:
    """Return whether ``folder`` contains a RocksDB database."""
    return is_file(folder / CURRENT)


def is_database_file(name: str) -> bool:
    """Return whether a file with this name, next to a CURRENT, belongs to the database."""
    return bool(_FILE.fullmatch(name) or _LEFT_OUT.fullmatch(name))


def copy_database(source: Path, target: Path, place: Place) -> None:
    """Copy the database in ``source`` into the folder ``target``; ``place`` copies its tables.

    Raises:
        StoreStateError: it changed during all attempts.
        CorruptionError: CURRENT names no MANIFEST, or a missing one.
        OSError: a file cannot be read or written.
    """
    for _ in range(_TRIES):
        try:
            if _try_copy(source, target, place):
                return
        except FileNotFoundError:  # removed after it was listed
            continue
    raise StoreStateError(
        f"cannot copy the database: it changed during each of {_TRIES} attempts. Try again when the"
        " broker has less load",
        path=source,
    )


def _try_copy(source: Path, target: Path, place: Place) -> bool:
    """Copy a database that may be open; return whether the copy is consistent."""
    before = _state(source)
    _remove_all_but_tables(target)
    names = sorted(path.name for path in source.iterdir() if _FILE.fullmatch(path.name))
    for name in names:
        if not _TABLE.fullmatch(name):
            copy_file(str(source / name), str(target / name))
        elif not _are_as_long(source / name, target / name):
            (target / name).unlink(missing_ok=True)
            place(source / name, target / name)
    if _state(source) != before:
        return False
    for path in target.iterdir():
        if path.name not in names and _TABLE.fullmatch(path.name):  # from an earlier attempt
            path.unlink()
    return True


def _are_as_long(table: Path, copy: Path) -> bool:
    """Return whether there is a copy of a table that has not grown since."""
    return exists(copy) and copy.stat().st_size == table.stat().st_size


def _remove_all_but_tables(target: Path) -> None:
    for path in target.iterdir():
        if _FILE.fullmatch(path.name) and not _TABLE.fullmatch(path.name):
            path.unlink()


def _state(source: Path) -> tuple[bytes, int, tuple[tuple[str, int], ...]]:
    """Return CURRENT, the length of its MANIFEST, and the logs, with lengths except the last."""
    current = read_file(source / CURRENT, _CURRENT_BYTES)
    if not _MANIFEST.fullmatch(current):
        raise CorruptionError(
            "CURRENT does not name a MANIFEST", path=source / CURRENT, expected="MANIFEST-<number>",
            got=repr(current),
        )  # fmt: skip
    manifest = source / current.decode().strip()
    try:
        length = manifest.stat().st_size
    except FileNotFoundError as exc:
        # RocksDB removes a MANIFEST when CURRENT names the next one.
        if read_file(source / CURRENT, _CURRENT_BYTES) != current:
            raise
        raise CorruptionError(
            "CURRENT names a MANIFEST that does not exist", path=source / CURRENT,
            expected=manifest.name, got="no such file",
        ) from exc  # fmt: skip
    logs = [path.name for path in matching(source, "*.log")]
    closed = [(name, (source / name).stat().st_size) for name in logs[:-1]]
    return current, length, (*closed, *((name, 0) for name in logs[-1:]))
