"""``cqstore/cutting``: a cut of the log that was asked for, until an opening has carried it out.

A note, tied to the file ``lock``, which RocketMQ writes at each start: it may have cut and
rewritten the log since, and then the note is void. So it is in a copy of the store.
"""

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import remove_file
from cqstore.store.journals.journal import Entry, is_offset
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_lock import lock_identity
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths


def begin_cut(paths: StorePaths, phy_offset: int) -> None:
    """Note durably that the log is to end at ``phy_offset``; the next opening sees to that.

    The caller has the store's lock, and has kept what is to be cut.

    Raises:
        StoreIOError: it cannot be written; nothing was asked for then.
        RefusedStoreError: the store has no file ``lock``, which ties the note to it.
    """
    tie = lock_identity(paths)
    if tie is None:
        raise RefusedStoreError(
            "cannot start a cut of the log: the lock file does not exist", path=paths.lock
        )
    write_note(paths.cutting, {"cut": phy_offset, "lock": list(tie)})


def begun_cut(paths: StorePaths) -> int | None:
    """Return where the log is to end by a cut that was begun; ``None``: none was, or it is void.

    Raises:
        CorruptionError: the note is damaged.
        StoreIOError: it cannot be read.
    """
    entry = read_note(
        paths.cutting, _is_entry, "the note of an unfinished cut of the log is damaged"
    )
    if entry is None or entry["lock"] != list(lock_identity(paths) or ()):
        return None
    cut: int = entry["cut"]
    return cut


def end_cut(paths: StorePaths) -> None:
    """Remove the note of a cut that has been done, durably, if there is one.

    Raises:
        StoreIOError: it cannot be removed.
    """
    if exists(paths.cutting):
        with os_errors("remove the note of a finished cut of the log", paths.cutting):
            remove_file(paths.cutting)


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is the note of a cut."""
    lock = entry.get("lock")
    return (
        set(entry) == {"cut", "lock"}
        and is_offset(entry["cut"])
        and isinstance(lock, list)
        and all(isinstance(each, int) for each in lock)
    )
