"""Removal of a store created with ``--new`` if no message was stored in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cqstore.cli.options import note
from cqstore.store.errors import StoreError
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.path_kind import is_dir, is_symlink, matching
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.settings.config import StoreConfig


@contextmanager
def nothing_half_made(root: Path, settings: StoreConfig, *, new: bool) -> Iterator[None]:
    """Remove the ``new`` store that the block created in ``root`` if no message was stored.

    No message was stored if the log has no file: the block failed, for example because the disk is
    full, or it had no message to append. An existing store, or a folder that is not empty, is not
    changed.
    """
    made = _missing(root) if new else []
    was_empty = new and is_dir(root) and not any(root.iterdir())
    try:
        yield
    finally:
        if (made or was_empty) and is_dir(root) and _is_unused(root, settings):
            _remove(root, made)


def _missing(root: Path) -> list[Path]:
    """Return ``root`` and its parent folders that do not exist, the deepest first."""
    whole = root.absolute()
    return [each for each in (whole, *whole.parents) if not os.path.lexists(each)]


def _is_unused(root: Path, settings: StoreConfig) -> bool:
    """Return whether no process has the store open and its log has no file."""
    try:
        refuse_if_open(StorePaths(root))
        folders = detect(root, settings).log_folders
        return not any(path.stat().st_size for each in folders for path in matching(each, "*"))
    except (OSError, StoreError):
        return False


def _remove(root: Path, made: list[Path]) -> None:
    """Remove the files of a new store and the folders that were created for it."""
    for path in root.iterdir():
        if is_dir(path) and not is_symlink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
    for folder in made:
        with suppress(OSError):  # another program has created a file in it
            folder.rmdir()
    note(f"{root}: no message was stored, so the new store was removed")
