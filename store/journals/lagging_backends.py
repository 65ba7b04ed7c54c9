"""LaggingBackends: what a store notes of its backends while it is open, see ``BackendState``."""

from collections.abc import Collection
from dataclasses import replace

from cqstore.store.journals.backend_state import (
    BackendState,
    read_backend_state,
    write_backend_state,
)
from cqstore.store.journals.journal_manifest import register
from cqstore.store.journals.store_lock import lock_stamp
from cqstore.store.paths import StorePaths


class LaggingBackends:
    """What the combined store notes of its backends. The caller has one thread write."""

    def __init__(self, paths: StorePaths, *, read_only: bool) -> None:
        self._paths = paths
        self._read_only = read_only
        self.backend_state = read_backend_state(paths)

    def lags_from(self, name: str) -> int | None:
        """Return up to where a backend that lags is whole; ``None`` if it does not lag."""
        return self.backend_state.lagging.get(name)

    def covers(self, name: str) -> str | None:
        """Return which topics the backend was given; ``None``: all."""
        return self.backend_state.covers.get(name)

    def keep(self) -> None:
        """Note durably that the record is there: its writer may have ended before that.

        Raises:
            CorruptionError: the note of our journals is damaged.
            StoreIOError: it cannot be written.
        """
        if self.backend_state != BackendState():
            register(self._paths.mode)

    def note_lagging(self, name: str, phy_offset: int) -> None:
        """Note that a backend is whole only up to there.

        Raises:
            StoreIOError: it cannot be noted.
        """
        if self.backend_state.lagging.get(name) != phy_offset:
            lagging = {**self.backend_state.lagging, name: phy_offset}
            self._write(replace(self.backend_state, lagging=lagging))

    def caught_up(self, name: str) -> None:
        """Note that a backend is whole, durably.

        Raises:
            StoreIOError: it cannot be noted.
        """
        lagging = {key: at for key, at in self.backend_state.lagging.items() if key != name}
        self._write(replace(self.backend_state, lagging=lagging))

    def note_covers(self, name: str, topics: str | None) -> None:
        """Note which topics a backend gets; ``None``: all.

        Raises:
            StoreIOError: it cannot be noted.
        """
        covers = {key: text for key, text in self.backend_state.covers.items() if key != name}
        if topics is not None:
            covers[name] = topics
        if covers != self.backend_state.covers:
            self._write(replace(self.backend_state, covers=covers))

    def log_was_cut(self, end: int, opened: Collection[str]) -> None:
        """Note, for backends that lag and are not open, that the log was cut at ``end``.

        Raises:
            StoreIOError: it cannot be noted.
        """
        lagging = {
            name: at if name in opened else min(at, end)
            for name, at in self.backend_state.lagging.items()
        }
        if lagging != self.backend_state.lagging:
            self._write(replace(self.backend_state, lagging=lagging))

    @property
    def are_alike(self) -> bool:
        """Return whether all backends were alike and only we have had the store since."""
        return 0 < self.backend_state.alike == lock_stamp(self._paths)

    def note_alike(self) -> None:
        """Note that all backends are alike.

        Raises:
            StoreIOError: it cannot be noted.
        """
        stamp = lock_stamp(self._paths)
        if stamp != self.backend_state.alike:
            self._write(replace(self.backend_state, alike=stamp))

    def _write(self, state: BackendState) -> None:
        if not self._read_only:
            write_backend_state(self._paths, state)
        self.backend_state = state
