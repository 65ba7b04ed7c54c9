"""The record of a store's backends: its state, and up to where those that are behind are whole.

One small file of ours, ``cqstore/mode``: one line as in every journal (CRC-32C, JSON), replaced as
a whole by rename. Without it all backends that lie in the store are kept alike.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from store.errors import CorruptionError, os_errors
from store.files import make_folder
from store.journals.journal import Entry, is_offset, read_lines, rewrite
from store.journals.kept import forget, keep
from store.journals.store_lock import lock_stamp
from store.journals.store_mode import StoreMode
from store.paths import StorePaths

_OLD, _NEW = {"cut"}, {"alike"}
"""What a record need not have: of a time before there was the one, or when there was the other."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The record as it lies on disk."""

    state: StoreMode | None = None
    """The state that was set; ``None``: what lies on disk and the settings decide."""
    behind: Mapping[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it surely has every record; one that is not here is whole.

    What it holds of records behind goes before anything is put into it: it may have holes, or be of
    a log that was cut there since, or of somebody who did not keep the other backend.
    """
    covers: Mapping[str, str] = field(default_factory=dict)
    """Backend → which topics it was given (``part.selects``); one not here: all of them."""
    alike: int = 0
    """Time of the file ``lock``, ns, when all backends were last alike, by a look or since filled.

    RocketMQ writes that file at each start: with another time they must be compared again.
    """


def read_standing(paths: StorePaths) -> Standing:
    """Return the record; an empty one if there is none. Changes nothing.

    Raises:
        CorruptionError: it is damaged.
        StoreIOError: it cannot be read.
    """
    entries = list(read_lines(paths.mode, _is_entry))
    if not entries:
        if paths.mode.exists():
            raise CorruptionError("the record of the backends is empty", path=paths.mode)
        return Standing()
    if len(entries) > 1 or entries[0] is None:
        raise CorruptionError("the record of the backends is damaged", path=paths.mode)
    entry = entries[0]
    try:
        state = None if entry["state"] is None else StoreMode(entry["state"])
    except ValueError as exc:
        raise CorruptionError(f"the record of the backends: {exc}", path=paths.mode) from exc
    return Standing(state, entry["behind"], entry["covers"], entry.get("alike", 0))


def write_standing(paths: StorePaths, standing: Standing) -> None:
    """Replace the record, durably when it returns.

    Raises:
        StoreIOError: it cannot be written; the old one is as it was.
    """
    with os_errors("make the folder of the record", paths.own):
        make_folder(paths.own)
    entry = {
        "state": standing.state,
        "behind": dict(standing.behind),
        "covers": dict(standing.covers),
        "alike": standing.alike,
    }
    if standing == Standing():  # says what no record says, too
        forget(paths.mode)
    rewrite(paths.mode, [entry])
    if standing != Standing():
        keep(paths.mode)


def _is_entry(entry: Entry) -> bool:
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


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """A state that was set, and the backends that are behind."""

    state: StoreMode
    behind: dict[str, int] = field(default_factory=dict)
    """Backend → phy offset up to which it is whole; one that is not here is whole."""


def read_mode(paths: StorePaths) -> ModeRecord | None:
    """Return the state that was set; ``None``: what lies on disk and the settings decide.

    Raises:
        CorruptionError, StoreIOError: as ``read_standing``.
    """
    standing = read_standing(paths)
    return None if standing.state is None else ModeRecord(standing.state, dict(standing.behind))


def write_mode(paths: StorePaths, record: ModeRecord) -> None:
    """Set the state, and what is behind, durably. The caller has the store's lock.

    A backend that ``record.behind`` does not name passes for whole from now on.

    Raises:
        StoreIOError: it cannot be written; the old one is as it was.
    """
    before = read_standing(paths)
    write_standing(paths, replace(before, state=record.state, behind=record.behind))


class BehindLines:
    """What the combined store notes of its backends. The caller sees to it that one writes."""

    def __init__(self, paths: StorePaths, *, read_only: bool) -> None:
        self._paths = paths
        self._read_only = read_only
        self.standing = read_standing(paths)

    def behind(self, name: str) -> int | None:
        """Return up to where a backend that is behind is whole; ``None`` if it is not behind."""
        return self.standing.behind.get(name)

    def covers(self, name: str) -> str | None:
        """Return which topics the backend was given; ``None``: all."""
        return self.standing.covers.get(name)

    def note_behind(self, name: str, phy_offset: int) -> None:
        """Note that a backend is whole only up to there.

        Raises:
            StoreIOError: it cannot be noted.
        """
        if self.standing.behind.get(name) != phy_offset:
            behind = {**self.standing.behind, name: phy_offset}
            self._write(replace(self.standing, behind=behind))

    def caught_up(self, name: str) -> None:
        """Note that a backend is whole, durably.

        Raises:
            StoreIOError: it cannot be noted.
        """
        behind = {key: at for key, at in self.standing.behind.items() if key != name}
        self._write(replace(self.standing, behind=behind))

    def note_covers(self, name: str, topics: str | None) -> None:
        """Note which topics a backend gets; ``None``: all.

        Raises:
            StoreIOError: it cannot be noted.
        """
        covers = {key: text for key, text in self.standing.covers.items() if key != name}
        if topics is not None:
            covers[name] = topics
        if covers != self.standing.covers:
            self._write(replace(self.standing, covers=covers))

    def log_was_cut(self, end: int, opened: Collection[str]) -> None:
        """Note, for backends that are behind and not open, that the log was cut at ``end``.

        Raises:
            StoreIOError: it cannot be noted.
        """
        behind = {
            name: at if name in opened else min(at, end)
            for name, at in self.standing.behind.items()
        }
        if behind != self.standing.behind:
            self._write(replace(self.standing, behind=behind))

    @property
    def alike(self) -> bool:
        """Return whether all backends were alike and only we have had the store since."""
        return 0 < self.standing.alike == lock_stamp(self._paths)

    def note_alike(self) -> None:
        """Note that all backends are alike.

        Raises:
            StoreIOError: it cannot be noted.
        """
        stamp = lock_stamp(self._paths)
        if stamp != self.standing.alike:
            self._write(replace(self.standing, alike=stamp))

    def _write(self, standing: Standing) -> None:
        if not self._read_only:
            write_standing(self._paths, standing)
        self.standing = standing
