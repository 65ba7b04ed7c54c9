"""``cqstore/kept``: the list of a store's journals, with which the loss of one is detected.

A missing or empty journal looks like one that never existed: deleted topics would reappear, a
half-built queue would be served. A name is added when its file is durable, with the file's minimum
size, and removed before the file is. If the whole folder ``cqstore`` is removed, the store is one
as RocketMQ has it, and this is not an error.
"""

import stat
from pathlib import Path

from cqstore.store.concurrency.checked_lock import process_lock
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.journals.journal import Entry, is_offset
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_CONSEQUENCES = {
    "deleted-topics": "deleted topics reappear",
    "expired-queues": "queues whose records have all expired restart at offset 0",
    "mode": "it is unknown what a backend lacks",
    "rebuilding": "partly rebuilt queues are served",
    "replacing": "parts that were moved away are not rebuilt",
}
KEPT_LOCK = process_lock("a note of the store's journals")
"""Guards the file against other threads of this process."""


def register(journal: Path, min_bytes: int = 0) -> None:
    """Record durably that ``journal`` exists, with at least ``min_bytes`` bytes.

    Raises:
        CorruptionError: the list is damaged.
        StoreIOError: the list cannot be written.
    """
    _change(journal, min_bytes)


def unregister(journal: Path) -> None:
    """Record durably that ``journal`` is about to be removed.

    Raises:
        CorruptionError, StoreIOError: as for ``register``.
    """
    _change(journal, None)


def register_existing(paths: StorePaths) -> None:
    """Record the existing journals durably: their creators may have ended before doing so.

    The record of the backends (``mode``) is left to its own reader.

    Raises:
        CorruptionError, StoreIOError: as for ``register``.
    """
    for journal in (paths.deleted_topics, paths.expired_queues):
        if exists(journal):
            with os_errors("read the size of the journal", journal):
                register(journal, journal.stat().st_size)


def check_kept(paths: StorePaths) -> None:
    """Refuse a store that has lost a journal. Changes nothing.

    Raises:
        RefusedStoreError: a journal is missing or truncated; the error explains the consequence.
        CorruptionError: the list is damaged.
        StoreIOError: the list cannot be read.
    """
    note = paths.own / _NAME
    lost = _lost(note) and _lost(note)  # read twice: a journal may just have been unregistered
    for name, what in lost.items():
        without = _CONSEQUENCES.get(name, "its content is lost")
        raise RefusedStoreError(
            f"this file of the store {what}; without it, {without}."
            f" Restore it from a copy, or remove {note} too to continue without it",
            path=paths.own / name,
        )


_NAME = "kept"


def _lost(note: Path) -> dict[str, str]:
    """Return the lost journals, and what happened to each."""
    found: dict[str, str] = {}
    for name, min_bytes in _read(note).items():
        try:
            status = (note.parent / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            found[name] = "is missing"
            continue
        if stat.S_ISREG(status.st_mode) and (size := status.st_size) < min_bytes:
            found[name] = f"is truncated: expected at least {min_bytes} bytes, found {size} bytes"
    return found


def _change(journal: Path, min_bytes: int | None) -> None:
    """Record durably that a journal has at least ``min_bytes``; ``None``: it will be removed."""
    note = journal.with_name(_NAME)
    with KEPT_LOCK.entry():
        before = _read(note)
        after = {name: size for name, size in before.items() if name != journal.name}
        if min_bytes is not None:
            after[journal.name] = min_bytes
        if after != before:
            write_note(note, {"kept": sorted(after), "bytes": after})


def _read(note: Path) -> dict[str, int]:
    """Return the recorded journals, with the minimum size of each."""
    entry = read_note(note, _is_entry, "the list of the journals is damaged")
    if entry is None:
        return {}
    sizes = entry.get("bytes", {})
    return {name: sizes.get(name, 0) for name in entry["kept"]}


def _is_entry(entry: Entry) -> bool:
    names, sizes = entry.get("kept"), entry.get("bytes", {})
    return (
        isinstance(names, list)
        and all(
            isinstance(name, str) and name not in {"", ".", ".."} and not {"/", "\0"} & set(name)
            for name in names
        )
        and isinstance(sizes, dict)
        and all(map(is_offset, sizes.values()))
    )
