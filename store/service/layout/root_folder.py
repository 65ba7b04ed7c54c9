"""Paths that cannot be the folder of a store: a file, and a part of another store.

Otherwise an opening for writing would create a new store inside another one. The output of a
command cannot be part of a store either: every later open would find it there.
"""

from itertools import pairwise
from pathlib import Path

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.path_kind import exists, is_dir, is_file, matching

_PARTS = {"commitlog", "index", "config", "cqstore", "checkpoint", "abort", "lock"}
"""Names in the folder of a store, in addition to ``consumequeue`` and its variants."""
_LOG_FILE = "[0-9]" * 20


def refuse_file(root: Path) -> None:
    """Refuse a file, or a path below a file, as the folder of a store.

    Raises:
        RefusedStoreError: ``root`` is a file, or below one, which the error names.
    """
    if is_dir(root):
        return
    for place in (root, *root.absolute().parents):
        if is_dir(place):
            return
        if exists(place):
            raise RefusedStoreError("this is a file, not the folder of a store", path=place)


def refuse_no_log_folder(commit_log: Path, own: Path | None = None) -> None:
    """Refuse a path that was named as the folder of a commit log and obviously is not.

    ``own``: the store's default log folder, if a setting names another one.

    Raises:
        RefusedStoreError: it is not a folder, is a store's root, or has no log file.
    """
    if not is_dir(commit_log):
        what = "this is a file" if exists(commit_log) else "no such folder"
    elif may_be_store(commit_log):
        what = f"this is the folder of a store. Did you mean {commit_log / 'commitlog'}?"
    elif any(commit_log.iterdir()) and not any(matching(commit_log, _LOG_FILE)):
        what = "no file in it has the name of a log file"
    else:
        return
    if own is not None and any(matching(own, _LOG_FILE)):
        what += f"; storePathCommitLog names it, but {own} holds a log. Did you mean that one?"
    raise RefusedStoreError(f"no commit log found: {what}", path=commit_log)


def refuse_part(root: Path) -> None:
    """Refuse a folder that is part of a store, at any level.

    Raises:
        RefusedStoreError: ``root`` is part of a store, which the error names.
    """
    whole = root.absolute()
    for below, above in pairwise([whole, *whole.parents]):
        if is_part_of_store(below.name) and may_be_store(above) and not may_be_store(whole):
            raise RefusedStoreError(f"this is a part of a store. Did you mean {above}?", path=root)


def refuse_in_store(
    target: Path, what: str, *roots: Path, is_store: bool = False, in_own_folder: bool = False
) -> None:
    """Refuse a path inside a store for a command's output (``what``), before anything is written.

    Stores are ``roots`` and folders that look like a store. A commit log folder outside its store
    counts as a part of it. Links are followed, and their own location is checked too. ``is_store``:
    ``target`` becomes a store, or is one. ``in_own_folder``: it may be below ``cqstore/migration``
    in a store.

    Raises:
        RefusedStoreError: ``target`` is inside a store, which the error names.
        StoreIOError: a path cannot be checked.
    """
    with os_errors(f"check the path of the {what}", target):
        given = {root.resolve() for root in roots}
        for place in dict.fromkeys((target.resolve(), _by_its_own_place(target))):
            for above in (place, *place.parents):
                is_root = above in given or may_be_store(above)
                if not is_root or (is_store and above == place):
                    continue
                if in_own_folder and _is_in_own_folder(place, above):
                    continue
                where = "the store itself" if above in given else f"the store {above}"
                raise RefusedStoreError(f"the {what} would be inside {where}", path=target)
            if is_dir(place.parent) and any(matching(place.parent, _LOG_FILE)):
                raise RefusedStoreError(
                    f"the {what} would be among the files of a commit log", path=target
                )


def _by_its_own_place(path: Path) -> Path:
    """Return a path whose last component may be a link, which is not followed."""
    if path.name in {"", ".."}:
        return path.resolve()
    return path.absolute().parent.resolve() / path.name


def _is_in_own_folder(place: Path, root: Path) -> bool:
    """Return whether ``place`` is where migrations of the store ``root`` may work."""
    names = place.relative_to(root).parts
    return names[:1] == ("cqstore",) and len(names) > 1 and names[1].startswith("migration")


def is_part_of_store(name: str = "") -> bool:
    """Return whether a store's folder has an entry with this name."""
    return name in _PARTS or name.startswith("consumequeue")


def may_be_store(folder: Path) -> bool:
    """Return whether a folder looks like that of a store."""
    return is_dir(folder / "commitlog") or is_file(folder / "checkpoint")
