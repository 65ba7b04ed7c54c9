"""The record of a store's backends: its state, and up to where those that lag are whole.

One note of ours, ``cqstore/mode``. Without it all backends that lie in the store are kept alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cqstore.store.errors import CorruptionError
from cqstore.store.journals.journal import Entry, is_offset
from cqstore.store.journals.journal_manifest import register, unregister
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_mode import StoreMode
from cqstore.store.paths import StorePaths

_OLD, _NEW = {"cut"}, {"alike"}
"""What a record need not have: of a time before there was the one, or when there was the other."""


@dataclass(frozen=True, slots=True)
class BackendState:
    """The record as it lies on disk."""

    mode: StoreMode | None = None
    """The state that was set; ``None``: what lies on disk and the settings decide."""
    lagging: Mapping[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it surely has every record; one that is not here is whole.

    On disk the key is ``behind``.

    What it holds of later records is removed before anything is put into it: it may have holes, or
    be of a log that was cut there since, or of a broker that did not keep the other backend.
    """
    covers: Mapping[str, str] = field(default_factory=dict)
    """Backend → which topics it was given (``selects``); one not here: all of them."""
    alike: int = 0
    """Time of the file ``lock``, ns, when all backends were last alike, by a look or since filled.

    RocketMQ writes that file at each start: with another time they must be compared again.
    """


def read_backend_state(paths: StorePaths) -> BackendState:
    """Return the record; an empty one if there is none. Changes nothing.

    Raises:
        CorruptionError: it is damaged.
        StoreIOError: it cannot be read.
    """
    entry = read_note(paths.mode, _is_entry, "the record of the backends is damaged")
    if entry is None:
        return BackendState()
    try:
        mode = None if entry["state"] is None else StoreMode(entry["state"])
    except ValueError as exc:
        raise CorruptionError(
            f"the record of the backends is damaged: {exc}", path=paths.mode
        ) from exc
    return BackendState(mode, entry["behind"], entry["covers"], entry.get("alike", 0))


def write_backend_state(paths: StorePaths, state: BackendState) -> None:
    """Replace the record, durably when it returns.

    Raises:
        StoreIOError: it cannot be written; the old one is unchanged.
    """
    entry = {
        "state": state.mode,
        "behind": dict(state.lagging),
        "covers": dict(state.covers),
        "alike": state.alike,
    }
    if state == BackendState():  # says what no record says, too
        unregister(paths.mode)
    write_note(paths.mode, entry)
    if state != BackendState():
        register(paths.mode)


def set_mode(paths: StorePaths, mode: StoreMode, lagging: Mapping[str, int]) -> None:
    """Set the state, and up to where each backend is whole that lags, durably.

    A backend that ``lagging`` does not name passes for whole from now on. The caller has the
    store's lock.

    Raises:
        StoreIOError: it cannot be written; the old record is unchanged.
    """
    write_backend_state(paths, replace(read_backend_state(paths), mode=mode, lagging=dict(lagging)))


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is a record of backends."""
    if set(entry) - _OLD - _NEW != {"state", "behind", "covers"}:
        return False
    if not isinstance(entry["state"], str | None):
        return False
    return (
        _is_table(entry["behind"], is_offset)
        and _is_table(entry["covers"], lambda value: isinstance(value, str))
        and is_offset(entry.get("alike", 0))
    )


def _is_table(value: object, is_value: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(is_value(each) for each in value.values())
