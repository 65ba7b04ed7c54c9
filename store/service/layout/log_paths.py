"""The folders of a commit log, as the settings name them.

Without ``storePathCommitLog`` the log is in ``ROOT/commitlog``. With the separator in that key, as
in ``/d1/commitlog,/d2/commitlog``, its files are spread over all of the folders, and those of
``readOnlyCommitLogStorePaths`` are read too.

Source: RocketMQ ``CommitLog``, ``MultiPathMappedFileQueue.getPaths``, ``getReadonlyPaths``.
"""

import os
import shlex
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import RefusedStoreError, StoreConfigError, os_errors
from cqstore.store.files import make_folder
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.service.layout.root_folder import is_part_of_store, may_be_store
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.java_values import java_trim

_PATHS = "storePathCommitLog"
_READ_ONLY = "readOnlyCommitLogStorePaths"
_ROOT_FILES = ("checkpoint", "lock", "abort")
"""Files that every store has in its root, not all of them at any time."""


class LogPaths(NamedTuple):
    """The folders of one commit log. Folders inside the store begin with its root."""

    folders: list[Path]
    """Folders with files of the log: first those of ``storePathCommitLog``, in its order."""
    targets: list[Path]
    """Folders for new files, in the order in which RocketMQ takes turns; empty: none is left."""
    measured: list[Path]
    """Folders of which the disk usage counts; files in other folders are only read."""
    is_default: bool = True
    """The only folder is ``ROOT/commitlog``."""

    @property
    def are_several(self) -> bool:
        """Return whether the log has more than one folder."""
        return len(self.folders) > 1


def log_paths(root: Path, config: StoreConfig) -> LogPaths:
    """Return the folders of the commit log of ``root``; they need not exist.

    Raises:
        StoreConfigError: a path is empty, or has blanks around it.
        RefusedStoreError: two paths are the same folder, or one is inside the other, or a path is
            not a place for a log because it contains the store or is another part of it.
    """
    own = root / "commitlog"
    text = java_trim(config.store_path_commit_log or "")
    if not text:
        return LogPaths([own], [own], [own])
    splitter = config.multi_path_splitter
    if not config.spreads_log or is_dir(Path(text)):  # a single folder, whatever its name is
        names, read_only = [text], []
    else:
        names = _split(_PATHS, text, splitter)
        read_only = _split(_READ_ONLY, config.read_only_commit_log_store_paths or "", splitter)
    folders = {name: _below(root, Path(name)) for name in [*names, *read_only]}
    if [*folders.values()] == [own]:
        return LogPaths([own], [own] if names != read_only else [], [own])
    _refuse_overlap(root, [*folders.values()])
    targets = sorted(set(names) - set(read_only), key=_java_order)
    return LogPaths(
        [*folders.values()],
        [folders[name] for name in targets],
        [folders[name] for name in dict.fromkeys(names)],
        is_default=False,
    )


def _split(key: str, text: str, splitter: str) -> list[str]:
    """Return the paths in a value, as RocketMQ splits it: empty ones at the end do not count.

    Raises:
        StoreConfigError: a path is empty, or has blanks around it.
    """
    parts = java_trim(text).split(splitter)
    while parts and not parts[-1]:
        parts.pop()
    for part in parts:
        if part != part.strip() or not part:
            raise StoreConfigError(
                f"{key}={text}: invalid path {part!r}: a broker takes blanks as a part of the"
                f" name. Write one path after each {splitter!r}, without blanks"
            )
    if text and not parts:
        raise StoreConfigError(f"{key}={text}: expected a path")
    return parts


def _java_order(name: str) -> bytes:
    """Return the key by which Java sorts strings; ``/a/`` and ``/a`` are different ones."""
    return name.encode("utf-16-be", "surrogatepass")


def _below(root: Path, folder: Path) -> Path:
    """Return ``folder`` as a path that begins with ``root`` if it is inside, whatever its links."""
    real, real_root = Path(os.path.realpath(folder)), os.path.realpath(root)
    own = root / "commitlog"
    if real == Path(os.path.realpath(own)):
        return own
    return root / real.relative_to(real_root) if real.is_relative_to(real_root) else folder


def _refuse_overlap(root: Path, folders: list[Path]) -> None:
    """Refuse folders that are not separate from each other and from the rest of the store.

    Raises:
        RefusedStoreError: two folders overlap.
    """
    real = {folder: Path(os.path.realpath(folder)) for folder in folders}
    if len(real) < len(folders) or len({*real.values()}) < len(real):
        places = [real[folder] for folder in folders]
        twice = next(place for place in places if places.count(place) > 1)
        raise RefusedStoreError(
            "the settings name this folder of the commit log twice, in different spellings"
            f" ({_PATHS}, {_READ_ONLY}): a broker would load each of its files twice",
            path=twice,
        )
    for one, other in combinations(folders, 2):
        for outer, inner in ((one, other), (other, one)):
            if real[inner].is_relative_to(real[outer]):
                raise RefusedStoreError(
                    f"a folder of the commit log is inside another one, {outer} ({_PATHS})",
                    path=inner,
                )
    own, whole = root / "commitlog", Path(os.path.realpath(root))
    for folder in folders:
        if whole.is_relative_to(real[folder]):
            raise RefusedStoreError(
                f"the folder of the commit log contains the store {root} ({_PATHS}): name a folder"
                " for the log alone",
                path=folder,
            )
        inside = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
        if folder != own and is_part_of_store(*inside[:1]) and not is_file(folder):
            raise RefusedStoreError(
                f"this is a part of the store and not a folder for its commit log ({_PATHS})",
                path=folder,
            )


def refuse_missing_paths(paths: LogPaths, *, is_new: bool) -> None:
    """Refuse a folder of the log that is missing: it may be on a disk that is not mounted.

    Without this, a log whose newest files are on that disk would be truncated as after a crash.
    ``is_new``: the store has no files yet, so its folders for new files may be missing.

    Raises:
        RefusedStoreError: a folder is missing, is not a folder, or is the root of a store.
    """
    for folder in paths.folders:
        if is_dir(folder):
            if may_be_store(folder):
                raise RefusedStoreError(
                    f"this is the folder of a store. Did you mean {folder / 'commitlog'}?",
                    path=folder,
                )
        elif exists(folder):
            raise RefusedStoreError("a path of the commit log is not a folder", path=folder)
        elif not (is_new and folder in paths.targets):
            raise RefusedStoreError(
                f"a folder of the commit log does not exist ({_PATHS}, {_READ_ONLY}). If its disk"
                " is not mounted, mount it. If the path is new, create it: mkdir -p"
                f" {shlex.quote(str(folder))}",
                path=folder,
            )


def reasons_to_only_read(root: Path, paths: LogPaths, config: StoreConfig) -> Iterator[str]:
    """Yield the reasons why no process of ours must write to these folders.

    Nothing on disk shows to which store a log belongs. So a log outside of the root is written only
    if ``storePathRootDir`` names this store: settings of the original of a copy name its log.
    """
    if not paths.targets:
        yield f"{_READ_ONLY} has all paths of {_PATHS}, so there is none for new files"
    own = root / "commitlog"
    if own not in paths.folders and log_file_paths([own], missing_ok=True):
        yield f"{_PATHS} does not name {own}, which has files of a log"
        return
    outside = [folder for folder in paths.folders if not folder.is_relative_to(root)]
    named = config.store_path_root_dir
    for folder in outside:
        if any(is_file(folder.parent / name) for name in _ROOT_FILES):
            yield f"its commit log is in another folder, {folder}, of the store {folder.parent}"
            return
    if outside and (not named or os.path.realpath(named) != os.path.realpath(root)):
        places = ", ".join(map(str, outside))
        found = f"is {named}" if named else "is not set"
        yield (
            f"its commit log is in another folder, {places}, and storePathRootDir {found}: set"
            f" storePathRootDir={root} if that log belongs to this store alone"
        )


def make_log_folders(paths: LogPaths) -> None:
    """Create the folders for new files of a new store.

    All of them are created before the first file: a missing one is then never a new one.

    Raises:
        StoreIOError: a folder cannot be created.
    """
    for folder in paths.targets:
        with os_errors("create a folder of the commit log", folder):
            make_folder(folder)
