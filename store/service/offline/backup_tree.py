"""TreeBackup: copies a store's folder except for its commit log, in a safe order.

Source: RocketMQ ``BrokerPathConfigHelper``, ``TimerMessageStore``, ``MixAll.string2File``.
"""

import os
from contextlib import suppress
from pathlib import Path

from cqstore.store.broker_files.file_names import (
    BACKUP_SUFFIX,
    DELAYS_FILE,
    GROUPS_FILE,
    LMQ_OFFSETS_FILE,
    OFFSETS_FILE,
    TIMER_CHECK_FILE,
    TIMER_METRICS_FILE,
    TIMER_WHEEL,
    TOPICS_FILE,
)
from cqstore.store.errors import StoreIOError, StoreStateError
from cqstore.store.files import make_folder
from cqstore.store.path_kind import exists, is_dir, is_symlink
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.offline.database_copy import copy_database, is_database, is_database_file
from cqstore.store.service.offline.store_copy import copy_file, share_file

_POSITIONS = {
    OFFSETS_FILE, LMQ_OFFSETS_FILE, DELAYS_FILE, "consumerOrderInfo.json", TIMER_CHECK_FILE,
    TIMER_METRICS_FILE, "consumerOffsets",
}  # fmt: skip
"""In ``config``: positions of consumers and timers, as files and version 1's database."""
_TOPICS = {TOPICS_FILE, GROUPS_FILE, "topics", "subscriptionGroups"}
"""In ``config``: copied again after the log."""
_TRIES = 100


class TreeBackup:
    """Copies the store of ``layout`` to ``target``, part by part, in the order of its methods.

    One thread. Files that are removed meanwhile are left out. Methods raise ``CorruptionError`` for
    a file that is not regular, ``OSError`` and ``StoreIOError`` for a file that cannot be read or
    written.
    """

    def __init__(self, layout: StoreLayout, target: Path, *, link: bool) -> None:
        self._from, self._to, self._link = layout.paths, StorePaths(target), link
        self._kinds = [backend(name) for name in layout.backends]
        own = self._from.own
        self._journals = {own / "kept", self._from.deleted_topics, self._from.expired_queues}
        self._left_out = {
            self._from.lock, self._from.synced, self._from.replaced, self._from.new_metadata,
            self._from.log_paths, *layout.log_folders,
        }  # fmt: skip

    def copy_positions(self) -> None:
        """Copy positions: the checkpoint, notes of cqstore, offsets, timers."""
        root, config = self._from.root, self._from.config
        for path in self._entries(root):
            if not is_dir(path) or path.name == TIMER_WHEEL:  # points into the timer's log
                self._copy(path)
        if is_dir(self._from.own):
            self._copy(self._from.own)
        for path in self._entries(config):
            if path.name.removesuffix(BACKUP_SUFFIX) in _POSITIONS:
                self._copy(path)

    def copy_derived(self) -> None:
        """Copy queues, index, timer log, databases: all folders except those of other methods."""
        done = {self._from.own, self._from.config, self._from.root / TIMER_WHEEL}
        for path in self._entries(self._from.root):
            if is_dir(path) and path not in done:
                self._copy(path)

    def copy_metadata(self) -> None:
        """Copy the rest of ``config``."""
        for path in self._entries(self._from.config):
            if path.name.removesuffix(BACKUP_SUFFIX) not in _POSITIONS | _TOPICS:
                self._copy(path)

    def copy_last(self) -> None:
        """Copy topics and groups, which may be ahead of the log, and the journals of deletions.

        Raises:
            StoreStateError: the journals change faster than they are copied.
            StoreIOError: a file cannot be copied.
        """
        for path in self._entries(self._from.config):
            if path.name.removesuffix(BACKUP_SUFFIX) in _TOPICS:
                self._copy(path)
        for _ in range(_TRIES):
            kept = _content(self._from.own / "kept")
            for path in self._journals:
                target = self._target(path)
                target.unlink(missing_ok=True)
                if exists(path):
                    make_folder(target.parent)
                    _copy_if_there(path, target)
            if _content(self._from.own / "kept") == kept:
                return
        raise StoreStateError(
            "cannot copy the journals: they change as fast as they are copied. Try again later",
            path=self._from.own,
        )

    def _entries(self, folder: Path) -> list[Path]:
        """Return the entries of a folder, by name, without those left out or copied last."""
        if not is_dir(folder):
            return []
        out = self._left_out | self._journals
        return sorted(path for path in folder.iterdir() if path not in out)

    def _target(self, path: Path) -> Path:
        return self._to.root / path.relative_to(self._from.root)

    def _copy(self, path: Path, above: frozenset[str] = frozenset()) -> None:
        """Copy a file, or a folder with all of its files; links are followed."""
        target = self._target(path)
        if not is_dir(path):
            make_folder(target.parent)
            _copy_if_there(path, target)
            return
        place = os.path.realpath(path)
        if place in above:
            raise StoreIOError("this link points to a folder that contains it", path=path)
        make_folder(target)
        if any(kind.copy_open(path, target) for kind in self._kinds):
            return
        database = is_database(path)
        if database:
            copy_database(path, target, self._share)
        for entry in self._entries(path):
            if not (database and is_database_file(entry.name)):
                self._copy(entry, above | {place})

    def _share(self, source: Path, target: Path) -> None:
        share_file(source, target, link=self._link)


def _copy_if_there(path: Path, target: Path) -> None:
    """Copy a file, unless it was removed since it was listed."""
    try:
        copy_file(str(path), str(target))
    except FileNotFoundError:
        if is_symlink(path):
            raise StoreIOError("the target of this link does not exist", path=path) from None
        if exists(path):
            raise


def _content(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
