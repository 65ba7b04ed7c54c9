"""A backup of a store that is open, here or in another process, or closed: from its files alone.

What is derived never lies ahead of what it is derived from: the checkpoint, offsets of consumers
and positions of timers are copied first, then queues, index and databases, then the end of the log.
So a backup of an open store is what a crash at that moment could have left, and its opening brings
the queues up to the end of the log. Log files that end before the log does are never written again;
they come first, for they take longest. Topics come last, for a broker deletes queues of topics that
it does not know. The backup gets its name when all of it is durable.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import RefusedStoreError, StoreError, StoreStateError, os_errors
from cqstore.store.files import make_folder, read_file, sync_below, sync_folder
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.path_kind import exists, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.offline.backup_log import LogBackup
from cqstore.store.service.offline.backup_manifest import (
    BackupManifest,
    begun_path,
    digest_files,
    holds_files,
    manifest_path,
    write_manifest,
)
from cqstore.store.service.offline.backup_tree import TreeBackup
from cqstore.store.service.offline.store_copy import check_target, copying
from cqstore.store.settings.config import StoreConfig

_MAX_MODE_BYTES = 1 << 20


def back_up(
    root: Path, target: Path, config: StoreConfig, *, link: bool = False,
    progress: Progress = noop,
) -> BackupManifest:  # fmt: skip
    """Back up the store ``root`` into the folder ``target``; return the manifest, which lies there.

    ``target`` appears when it is whole, its commit log in ``target/commitlog`` wherever that of the
    store lies. ``link``: files of the log that are never written again are hard links to the
    store's where the file system can; a cut of the store's log reaches them. ``progress`` is
    called with the phy offset up to which the log is copied. Changes no byte of the store.

    Raises:
        RefusedStoreError: ``target`` is there or lies in the store, or ``root`` is no store.
        StoreStateError: the store is being repaired, switched or cut, or a database changes faster
            than it can be copied.
        CorruptionError: something in the store is no regular file.
        DiskFullError: there is no room; nothing is left of the backup.
        StoreIOError: something cannot be read or written; nothing is left of the backup.
    """
    layout = detect(root, config)
    if not layout.has_log and not layout.backends:
        raise RefusedStoreError("there is no store to back up", path=root)
    with (
        _building(root, target) as partial,
        copying("back up the store", root, partial, target),
    ):
        before = _LockFacts.of(layout.paths)
        log = LogBackup(layout.log_folders, StorePaths(partial).commit_log, progress, link=link)
        tree = TreeBackup(layout, partial, link=link)
        log.check_room(root)
        _copy(log, tree)
        was_open = before.was_open_until(_LockFacts.of(layout.paths)) or log.has_grown()
        damaged_at = (
            log.cut_to_proven_end() if was_open else log.damage(crashed=exists(layout.paths.abort))
        )
        if was_open:
            StorePaths(partial).abort.touch()
        minimum, end = log.bounds()
        manifest = BackupManifest(
            source=_name(root), left_out=[*map(_name, layout.foreign)],
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            was_open=was_open, min_phy_offset=minimum, max_phy_offset=end, damaged_at=damaged_at,
            files=digest_files(partial, progress),
        )  # fmt: skip
        with os_errors("sync the backup", target):
            sync_below([partial])
        write_manifest(partial, manifest)
    return manifest


def _name(path: Path) -> str:
    """Return a path as JSON can hold it."""
    return os.fsencode(path.absolute()).decode("utf-8", "backslashreplace")


def _copy(log: LogBackup, tree: TreeBackup) -> None:
    """Copy all, in the order that lets nothing lie ahead of what it is derived from."""
    log.copy_closed()
    tree.copy_positions()
    tree.copy_derived()
    tree.copy_metadata()
    log.copy_rest()
    tree.copy_last()


class _LockFacts(NamedTuple):
    """What shows whether a process had the store open, or changed it."""

    pid: int
    starts: tuple[int, int]
    """When ``lock`` and ``abort.bak`` were written, ns: each start of a broker or of ours does."""
    mode: bytes

    @classmethod
    def of(cls, paths: StorePaths) -> "_LockFacts":
        """Return what shows now whether the store is open, and by whom.

        Raises:
            StoreStateError: a step of ours over the whole store is not finished.
        """
        for journal in (
            paths.rebuilding, paths.replacing, paths.placing_metadata, paths.cutting,
            paths.passing_over,
        ):  # fmt: skip
            if exists(journal):
                raise StoreStateError(
                    "an earlier operation on this store is not finished. Let it finish, or open the"
                    " store (cqstore recover)",
                    path=journal,
                )
        try:
            pid = locked_by(paths)
        except StoreError:  # a file system that is read-only, say
            pid = 0
        mode = read_file(paths.mode, _MAX_MODE_BYTES) if exists(paths.mode) else b""
        return cls(pid, (_written(paths.lock), _written(paths.abort_backup)), mode)

    def was_open_until(self, after: "_LockFacts") -> bool:
        """Return whether a process had the store open between the two.

        Raises:
            StoreStateError: its backends are others now.
        """
        if after.mode != self.mode:
            raise StoreStateError(
                "the store's state changed during the backup. Run the backup again"
            )
        return bool(self.pid or after.pid) or self.starts != after.starts


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if exists(path) else 0


@contextmanager
def _building(root: Path, target: Path) -> Iterator[Path]:
    """Give the folder in which the backup is built; it gets its name when the block ends well."""
    check_target(root, target, "backup")
    with os_errors("create the folder of the backup", target):
        partial = target.with_name(f"{target.name}.partial")
        _remove_unfinished(partial)
        make_folder(begun_path(partial).parent)
        with begun_path(partial).open("wb") as begun:
            fcntl.flock(begun, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                yield partial
                begun_path(partial).unlink()
                partial.rename(target)
                sync_folder(target.absolute().parent)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise


def _remove_unfinished(partial: Path) -> None:
    """Remove what a killed backup left; nothing else, and nothing of one that still runs."""
    if not os.path.lexists(partial):
        return
    begun = begun_path(partial)
    is_ours = is_file(begun) or is_file(manifest_path(partial)) or not holds_files(partial)
    if not is_ours:
        raise RefusedStoreError(
            "the path already exists and is not an unfinished backup", path=partial
        )
    if is_file(begun):
        with begun.open("rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise RefusedStoreError(
                    "another backup is being written here", path=partial
                ) from exc
    shutil.rmtree(partial)
