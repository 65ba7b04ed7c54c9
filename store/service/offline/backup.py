"""A backup of a store that is closed, or open in any process, made from its files alone.

Derived data is never ahead of its source: the checkpoint, offsets of consumers and positions of
timers are copied first, then queues, index and databases, then the end of the log. So a backup of
an open store is what a crash at that moment could have left, and opening it extends the queues to
the end of the log. Log files before the last one are never written again; they are copied first,
because they take longest. Topics are copied last, because a broker deletes queues of unknown
topics. The backup gets its name when all of it is durable.
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
    """Back up the store ``root`` into the folder ``target``; return the manifest stored there.

    ``target`` appears when it is complete, with its commit log in ``target/commitlog`` wherever
    that of the store is. ``link``: log files that are never written again become hard links to the
    store's files if the file system supports it; a truncation of the store's log changes them too.
    ``progress`` is called with the phy offset up to which the log is copied. Changes no byte of the
    store.

    Raises:
        RefusedStoreError: ``target`` exists or is in the store, or ``root`` is not a store.
        StoreStateError: the store is being repaired, switched or truncated, or a database changes
            faster than it can be copied.
        CorruptionError: a file in the store is not a regular file.
        DiskFullError: there is no space; the backup is removed.
        StoreIOError: a file cannot be read or written; the backup is removed.
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
    """Return a path in a form that fits JSON."""
    return os.fsencode(path.absolute()).decode("utf-8", "backslashreplace")


def _copy(log: LogBackup, tree: TreeBackup) -> None:
    """Copy everything in an order in which derived data is never ahead of its source."""
    log.copy_closed()
    tree.copy_positions()
    tree.copy_derived()
    tree.copy_metadata()
    log.copy_rest()
    tree.copy_last()


class _LockFacts(NamedTuple):
    """Facts that show whether a process had the store open, or changed it."""

    pid: int
    starts: tuple[int, int]
    """When ``lock`` and ``abort.bak`` were written, ns, as at each start of a broker or cqstore."""
    mode: bytes

    @classmethod
    def of(cls, paths: StorePaths) -> "_LockFacts":
        """Return the facts that show now whether the store is open, and by which process.

        Raises:
            StoreStateError: an operation on the whole store is unfinished.
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
        except StoreError:  # for example a read-only file system
            pid = 0
        mode = read_file(paths.mode, _MAX_MODE_BYTES) if exists(paths.mode) else b""
        return cls(pid, (_written(paths.lock), _written(paths.abort_backup)), mode)

    def was_open_until(self, after: "_LockFacts") -> bool:
        """Return whether a process had the store open between the two.

        Raises:
            StoreStateError: its backends have changed.
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
    """Yield the folder in which the backup is built; it is renamed if the block succeeds."""
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
    """Remove the files of a killed backup; nothing else, and nothing of a running one."""
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
