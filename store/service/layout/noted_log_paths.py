"""``cqstore/log-paths``: the folders of a log that is not only in ``ROOT/commitlog``.

A note, replaced at each opening for writing. It shows what nothing else on disk does: that a folder
of the log is a disk that is not mounted, or that the settings were forgotten. Such a log would look
as if its newest files were lost. It is bound to the file ``lock``, so it is invalid in a copy.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import remove_file
from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths


def note_log_paths(paths: StorePaths, folders: Sequence[Path]) -> None:
    """Record durably where the log is; remove the note if that is only ``ROOT/commitlog``.

    The caller holds the store's lock, and the folders exist.

    Raises:
        StoreIOError: the note cannot be written or removed.
    """
    with os_errors("note the folders of the commit log", paths.log_paths):
        if [*folders] == [paths.root / "commitlog"]:
            if exists(paths.log_paths):
                remove_file(paths.log_paths)
            return
        own = _mount_point(paths.root)
        mounts = {_name(paths, folder): _mount_point(folder) for folder in folders}
        entry: Entry = {
            "lock": _inode(paths),
            "folders": {name: "" if at == own else at for name, at in mounts.items()},
        }
        if read_note(paths.log_paths, _is_entry, _DAMAGED) != entry:
            write_note(paths.log_paths, entry)


def refuse_unlike_noted(paths: StorePaths, folders: Sequence[Path]) -> None:
    """Refuse settings that leave out a folder of the log, and a disk that is not mounted.

    A noted folder that exists and has no files of the log may be left out.

    Raises:
        RefusedStoreError: such a folder; the error names it.
        CorruptionError: the note is damaged.
        StoreIOError: the note, or a folder, cannot be read.
    """
    entry = read_note(paths.log_paths, _is_entry, _DAMAGED)
    if entry is None or entry["lock"] != _inode(paths):
        return
    named = {os.path.realpath(folder) for folder in folders}
    noted: dict[str, str] = entry["folders"]
    for name, mount_point in noted.items():
        folder = paths.root / name
        if mount_point and not Path(mount_point).is_mount():
            raise RefusedStoreError(
                f"a folder of the commit log was on a disk that is not mounted at {mount_point}."
                f" Mount it{_or_remove(paths)}",
                path=folder,
            )
        if os.path.realpath(folder) in named:
            continue
        if not exists(folder) or log_file_paths([folder]):
            raise RefusedStoreError(
                "the commit log of this store also was in this folder, which the settings do not"
                " name. Name it in storePathCommitLog or readOnlyCommitLogStorePaths (for example"
                f" with the broker's configuration file: --config){_or_remove(paths)}",
                path=folder,
            )


_DAMAGED = "the note of the folders of the commit log is damaged"


def _or_remove(paths: StorePaths) -> str:
    return f"; if its files were moved to another folder, remove {paths.log_paths}"


def _name(paths: StorePaths, folder: Path) -> str:
    """Return a folder's path, relative to the root if it is inside: a store may be renamed."""
    if folder.is_relative_to(paths.root):
        return str(folder.relative_to(paths.root))
    return str(folder.absolute())


def _mount_point(folder: Path) -> str:
    """Return the mount point of the file system of ``folder``."""
    real = Path(os.path.realpath(folder))
    return str(next(at for at in (real, *real.parents) if at.is_mount()))


def _inode(paths: StorePaths) -> int:
    """Return the inode of the lock file, which a copy of the store does not have; 0: no file."""
    return paths.lock.stat().st_ino if exists(paths.lock) else 0


def _is_entry(entry: Entry) -> bool:
    folders = entry.get("folders")
    return (
        entry.keys() == {"lock", "folders"}
        and type(entry["lock"]) is int
        and isinstance(folders, dict)
        and all(isinstance(each, str) for pair in folders.items() for each in pair)
    )
