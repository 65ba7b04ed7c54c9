"""The record of a store's backends: its mode, and how far lagging backends are complete.

It is the note ``cqstore/mode``. Without it all existing backends of the store are kept equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cqstore.store.errors import CorruptionError
from cqstore.store.journals.journal import Entry, is_offset
from cqstore.store.journals.journal_manifest import register, unregister
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_lock import lock_stamp
from cqstore.store.journals.store_mode import StoreMode
from cqstore.store.paths import StorePaths

_OLD, _NEW = {"cut"}, {"alike", "choice"}
"""Fields that a record may lack, because they were dropped or added later."""


@dataclass(frozen=True, slots=True)
class BackendState:
    """The record in its stored form."""

    mode: StoreMode | None = None
    """The mode that was set; ``None``: the files on disk and the settings decide."""
    lagging: Mapping[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it surely has all records; without an entry it is complete.

    On disk the key is ``behind``.

    Its units of later records are removed before anything is put into it: they may have holes, or
    belong to a log that was truncated since, or to a broker that did not keep the other backend.
    """
    covers: Mapping[str, str] = field(default_factory=dict)
    """Backend → the topics that it gets (``selects``); without an entry: all."""
    alike: int = 0
    """Time of the file ``lock``, ns, when all backends were last equal, by a comparison or a fill.
    Lagging ones are equal up to their offsets.

    RocketMQ writes that file at each start: if its time differs, they must be compared again.
    """
    choice: Mapping[str, str] = field(default_factory=dict)
    """Backend → the topics that a move gave it (``selects``), whatever the settings are.

    Empty unless a move took only some topics, see ``store/queue/topic_choice.py``.
    """


def read_backend_state(paths: StorePaths) -> BackendState:
    """Return the record; an empty one if it does not exist. Changes nothing.

    Raises:
        CorruptionError: the record is damaged.
        StoreIOError: the record cannot be read.
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
    return BackendState(
        mode, entry["behind"], entry["covers"], entry.get("alike", 0), entry.get("choice", {})
    )


def write_backend_state(paths: StorePaths, state: BackendState) -> None:
    """Replace the record, durably when it returns.

    Raises:
        StoreIOError: the record cannot be written; the old one is unchanged.
    """
    entry: dict[str, object] = {
        "state": state.mode,
        "behind": dict(state.lagging),
        "covers": dict(state.covers),
        "alike": state.alike,
    }
    if state.choice:  # a release that does not know the key must refuse the record
        entry["choice"] = dict(state.choice)
    if state == BackendState():  # the same as no record
        unregister(paths.mode)
    write_note(paths.mode, entry)
    if state != BackendState():
        register(paths.mode)


def set_mode(
    paths: StorePaths,
    mode: StoreMode,
    lagging: Mapping[str, int],
    choice: Mapping[str, str] | None = None,
    *,
    alike: bool = False,
) -> None:
    """Set the mode, and the phy offset up to which each lagging backend is complete, durably.

    A backend that is not in ``lagging`` counts as complete from now on. ``choice`` replaces the
    topics that backends get; each backend counts as having exactly these. ``alike``: all backends
    were just compared, up to these phy offsets. The caller holds the store's lock.

    Raises:
        StoreIOError: the record cannot be written; the old one is unchanged.
    """
    state = replace(read_backend_state(paths), mode=mode, lagging=dict(lagging))
    if choice is not None:
        state = replace(state, choice=dict(choice), covers=dict(choice))
    if alike:
        state = replace(state, alike=lock_stamp(paths))
    write_backend_state(paths, state)


def note_unlike(paths: StorePaths) -> None:
    """Record that the backends differ: the next opening compares them, and fills what is missing.

    The caller holds the store's lock.

    Raises:
        StoreIOError: the record cannot be written.
    """
    write_backend_state(paths, replace(read_backend_state(paths), alike=0))


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is a record of backends."""
    if set(entry) - _OLD - _NEW != {"state", "behind", "covers"}:
        return False
    if not isinstance(entry["state"], str | None):
        return False
    return (
        _is_table(entry["behind"], is_offset)
        and _is_table(entry["covers"], lambda value: isinstance(value, str))
        and _is_table(entry.get("choice", {}), lambda value: isinstance(value, str))
        and is_offset(entry.get("alike", 0))
    )


def _is_table(value: object, is_value: Callable[[object], bool]) -> bool:
    return isinstance(value, dict) and all(is_value(each) for each in value.values())
