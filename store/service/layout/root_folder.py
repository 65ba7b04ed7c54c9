"""What cannot be the folder of a store: a file, and what is a part of one.

An opening to write would else make a new store there, in the middle of another one.
"""

from itertools import islice, pairwise
from pathlib import Path

from cqstore.store.errors import RefusedStoreError
from cqstore.store.path_kind import exists, is_dir, is_file, matching

_PARTS = {"commitlog", "index", "config", "cqstore", "checkpoint", "abort", "lock"}
"""What lies in the folder of a store, beside ``consumequeue`` and its like."""
_LOG_FILE = "[0-9]" * 20


def refuse_file(root: Path) -> None:
    """Refuse a file, or what would lie below one, as the folder of a store.

    Raises:
        RefusedStoreError: it is one, or below one, which the error names.
    """
    if is_dir(root):
        return
    for place in (root, *root.absolute().parents):
        if is_dir(place):
            return
        if exists(place):
            raise RefusedStoreError("this is a file, not the folder of a store", path=place)


def refuse_no_log_folder(commit_log: Path) -> None:
    """Refuse what a caller named as the folder of a commit log and is none at a glance.

    Raises:
        RefusedStoreError: it is no folder, a store's own, or has no log file.
    """
    if not is_dir(commit_log):
        what = "a file" if exists(commit_log) else "no such folder"
    elif _may_be_store(commit_log):
        what = f"the folder of a store; is {commit_log / 'commitlog'} meant?"
    elif any(commit_log.iterdir()) and not any(matching(commit_log, _LOG_FILE)):
        what = "no file there has the name of a log's"
    else:
        return
    raise RefusedStoreError(f"no commit log lies here: {what}", path=commit_log)


def refuse_part(root: Path, levels: int | None = None) -> None:
    """Refuse a part of a store that lies above it, so many levels or any.

    Raises:
        RefusedStoreError: it is one; the error names the store.
    """
    whole = root.absolute()
    for below, above in islice(pairwise([whole, *whole.parents]), levels):
        if _is_part(below.name) and _may_be_store(above) and not _may_be_store(whole):
            raise RefusedStoreError(f"this is a part of a store: is {above} meant?", path=root)


def _is_part(name: str) -> bool:
    """Return whether something with this name lies in the folder of a store."""
    return name in _PARTS or name.startswith("consumequeue")


def _may_be_store(folder: Path) -> bool:
    """Return whether a folder looks like that of a store."""
    return is_dir(folder / "commitlog") or is_file(folder / "checkpoint")
