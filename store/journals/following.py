"""The progress of a follower, for other processes: ``cqstore/following``.

A note, replaced every few seconds. It describes one past moment: nothing depends on it.
"""

from dataclasses import asdict, dataclass, fields

from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.paths import StorePaths


@dataclass(frozen=True, slots=True)
class Following:
    """The progress of a follower when it was last recorded."""

    pid: int
    time: float
    """Seconds since the epoch."""
    master: str
    """``HOST:PORT``."""
    connected: bool
    verified: bool
    """The master has sent the same end of log as stored here, on this or the last connection."""
    caught_up: bool
    """All bytes of the master's log are stored here."""
    end: int
    """Phy offset after the last record here."""
    reported: int
    """Phy offset last reported to the master, -1: none."""
    master_end: int
    """End of the master's log when last received, -1: not received."""
    lag_bytes: int | None
    """Bytes of the master's log that are missing here, at least; ``None``: unknown."""
    last_stored_ms: int
    """Store time of the last record received, 0: none."""
    connections: int
    body_bytes: int
    """Bytes of log received, including bytes that were stored here already."""
    metadata_time: float
    """Time of the last complete copy of all tables, in seconds since the epoch; 0: none."""
    metadata_fault: str
    """The error of the last copy of the tables."""


_KINDS: dict[str, set[object]] = {each.name: {each.type} for each in fields(Following)}
_KINDS["lag_bytes"] = {int, type(None)}


def read_following(paths: StorePaths) -> Following | None:
    """Return the last note of a follower; ``None``: this store was never a follower's.

    Raises:
        CorruptionError: the note is damaged.
        StoreIOError: the note cannot be read.
    """
    entry = read_note(paths.following, _is_entry, "the note of a follower is damaged")
    return None if entry is None else Following(**entry)


def write_following(paths: StorePaths, following: Following) -> None:
    """Replace the note.

    Raises:
        StoreIOError: the note cannot be written; it is unchanged.
    """
    write_note(paths.following, asdict(following))


def _is_entry(entry: Entry) -> bool:
    if entry.keys() != _KINDS.keys():
        return False
    return all(type(value) in _KINDS[name] for name, value in entry.items())
