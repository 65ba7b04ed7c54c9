"""How far a follower is, for other processes: ``cqstore/following``.

A note, replaced every few seconds. It says what was so at one moment: nothing rests on it.
"""

from dataclasses import asdict, dataclass, fields

from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.paths import StorePaths


@dataclass(frozen=True, slots=True)
class Following:
    """How far a follower was when it was noted last."""

    pid: int
    time: float
    """Seconds since the epoch."""
    master: str
    """``HOST:PORT``."""
    connected: bool
    verified: bool
    """The master has sent what the log here ended with, on this connection or the last one."""
    caught_up: bool
    """The master has no byte that is not here."""
    end: int
    """Phy offset behind the last record here."""
    reported: int
    """What was last reported to the master, -1: nothing."""
    master_end: int
    """Where the master's log ended when it was last asked, -1: it was not, or did not say."""
    lag_bytes: int | None
    """Bytes of the master's log that are not here, at least; ``None``: that is not known."""
    last_stored_ms: int
    """Store time of the last record that came, 0: none has."""
    connections: int
    body_bytes: int
    """Of log that came, those among them that were here already."""
    metadata_time: float
    """When all tables had come last, seconds since the epoch; 0: never, or not asked for."""
    metadata_fault: str
    """What was wrong with them the last time."""


_KINDS: dict[str, set[object]] = {each.name: {each.type} for each in fields(Following)}
_KINDS["lag_bytes"] = {int, type(None)}


def read_following(paths: StorePaths) -> Following | None:
    """Return what a follower has noted last; ``None``: this store was never a follower's.

    Raises:
        CorruptionError: it is damaged.
        StoreIOError: it cannot be read.
    """
    entry = read_note(paths.following, _is_entry, "the note of a follower is damaged")
    return None if entry is None else Following(**entry)


def write_following(paths: StorePaths, following: Following) -> None:
    """Replace the note.

    Raises:
        StoreIOError: it cannot be written; it is unchanged.
    """
    write_note(paths.following, asdict(following))


def _is_entry(entry: Entry) -> bool:
    if entry.keys() != _KINDS.keys():
        return False
    return all(type(value) in _KINDS[name] for name, value in entry.items())
