"""``cqstore/cutting``: a requested truncation of the log, until an opening has done it.

A note, bound to the file ``lock``, which RocketMQ writes at each start: RocketMQ may have truncated
and rewritten the log since, so the note is then invalid. It is also invalid in a copy of the store.
"""

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import remove_file
from cqstore.store.journals.journal import Entry, is_offset
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_lock import lock_identity
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths


def begin_cut(paths: StorePaths, phy_offset: int) -> None:
    """Record durably that the log must end at ``phy_offset``; the next opening truncates it.

    The caller holds the store's lock, and has saved the bytes to be cut.

    Raises:
        StoreIOError: the note cannot be written; no truncation is requested then.
        RefusedStoreError: the store has no file ``lock``, to which the note is bound.
    """
    tie = lock_identity(paths)
    if tie is None:
        raise RefusedStoreError(
            "cannot start a cut of the log: the lock file does not exist", path=paths.lock
        )
    write_note(paths.cutting, {"cut": phy_offset, "lock": list(tie)})


def begun_cut(paths: StorePaths) -> int | None:
    """Return the requested end of the log; ``None``: there is no valid request.

    Raises:
        CorruptionError: the note is damaged.
        StoreIOError: the note cannot be read.
    """
    entry = read_note(
        paths.cutting, _is_entry, "the note of an unfinished cut of the log is damaged"
    )
    if entry is None or entry["lock"] != list(lock_identity(paths) or ()):
        return None
    cut: int = entry["cut"]
    return cut


def end_cut(paths: StorePaths) -> None:
    """Remove the note after the truncation, durably, if there is one.

    Raises:
        StoreIOError: the note cannot be removed.
    """
    if exists(paths.cutting):
        with os_errors("remove the note of a finished cut of the log", paths.cutting):
            remove_file(paths.cutting)


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is the note of a truncation."""
    lock = entry.get("lock")
    return (
        set(entry) == {"cut", "lock"}
        and is_offset(entry["cut"])
        and isinstance(lock, list)
        and all(isinstance(each, int) for each in lock)
    )
