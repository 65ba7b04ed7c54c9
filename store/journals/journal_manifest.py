"""``cqstore/kept``: which of our journals a store has, so that the loss of one is noticed.

A journal that is gone looks like one that never was: deleted topics would come back, a half-built
queue would be served. A name is noted when its file is durable, and taken out before the file goes.
If the whole folder ``cqstore`` is removed, the store is one as RocketMQ knows it, without an error.
"""

from pathlib import Path

from cqstore.store.concurrency.checked_lock import process_lock
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_CONSEQUENCES = {
    "deleted-topics": "deleted topics come back",
    "expired-queues": "queues whose records have all expired begin at 0 again",
    "mode": "what a backend lacks is unknown",
    "rebuilding": "queues that are half rebuilt are served",
    "replacing": "what has been moved away is not rebuilt",
}
KEPT_LOCK = process_lock("a note of the store's journals")
"""Guards the file against threads of this process."""


def register(journal: Path) -> None:
    """Note durably that ``journal`` is there.

    Raises:
        CorruptionError: the note is damaged.
        StoreIOError: it cannot be written.
    """
    _change(journal, there=True)


def unregister(journal: Path) -> None:
    """Note durably that ``journal`` is about to go.

    Raises:
        CorruptionError, StoreIOError: as for ``register``.
    """
    _change(journal, there=False)


def register_existing(paths: StorePaths) -> None:
    """Note durably the existing journals: the process that made one may have ended before its note.

    The record of the backends (``mode``) is left to its own reader.

    Raises:
        CorruptionError, StoreIOError: as for ``register``.
    """
    for journal in (paths.deleted_topics, paths.expired_queues):
        if exists(journal):
            register(journal)


def check_kept(paths: StorePaths) -> None:
    """Refuse a store that has lost a journal. Changes nothing.

    Raises:
        RefusedStoreError: one is not there; the sentence says what that would lead to.
        CorruptionError: the note is damaged.
        StoreIOError: it cannot be read.
    """
    note = paths.own / _NAME
    lost = _lost(note) and _lost(note)  # the second time: its writer may just have taken it out
    for name in lost:
        without = _CONSEQUENCES.get(name, "what it said is forgotten")
        raise RefusedStoreError(
            f"this file of the store is lost; without it {without}."
            f" Bring it back from a copy; to go on without it, remove {note} too",
            path=paths.own / name,
        )


_NAME = "kept"


def _lost(note: Path) -> list[str]:
    return [name for name in _read(note) if not exists(note.parent / name)]


def _change(journal: Path, *, there: bool) -> None:
    """Note durably that a journal is ``there``, or is not any more."""
    note = journal.with_name(_NAME)
    with KEPT_LOCK.entry():
        names = _read(note)
        if (journal.name in names) == there:
            return
        left = [name for name in names if name != journal.name]
        write_note(note, {"kept": sorted([*left, journal.name] if there else left)})


def _read(note: Path) -> list[str]:
    entry = read_note(note, _is_entry, "the note of our journals is damaged")
    names: list[str] = [] if entry is None else entry["kept"]
    return names


def _is_entry(entry: Entry) -> bool:
    names = entry.get("kept")
    return isinstance(names, list) and all(
        isinstance(name, str) and name not in {"", ".", ".."} and not {"/", "\0"} & set(name)
        for name in names
    )
