"""LaggingBackends: the record of a store's backends while it is open, see ``BackendState``."""

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
    """The combined store's record of its backends. The caller ensures that one thread writes."""

    def __init__(self, paths: StorePaths, *, read_only: bool) -> None:
        self._paths = paths
        self._read_only = read_only
        self.backend_state = read_backend_state(paths)

    def lags_from(self, name: str) -> int | None:
        """Return how far (phy offset) a lagging backend is complete; ``None``: it does not lag."""
        return self.backend_state.lagging.get(name)

    def covers(self, name: str) -> str | None:
        """Return the selection of topics that the backend gets; ``None``: all."""
        return self.backend_state.covers.get(name)

    def keep(self) -> None:
        """Record durably that the record exists: its creator may have ended before doing so.

        Raises:
            CorruptionError: the list of journals is damaged.
            StoreIOError: the list cannot be written.
        """
        if self.backend_state != BackendState():
            register(self._paths.mode)

    def note_lagging(self, name: str, phy_offset: int) -> None:
        """Record that a backend is complete only up to ``phy_offset``.

        Raises:
            StoreIOError: the record cannot be written.
        """
        if self.backend_state.lagging.get(name) != phy_offset:
            lagging = {**self.backend_state.lagging, name: phy_offset}
            self._write(replace(self.backend_state, lagging=lagging))

    def caught_up(self, name: str) -> None:
        """Record that a backend is complete, durably.

        Raises:
            StoreIOError: the record cannot be written.
        """
        lagging = {key: at for key, at in self.backend_state.lagging.items() if key != name}
        self._write(replace(self.backend_state, lagging=lagging))

    def note_covers(self, name: str, topics: str | None) -> None:
        """Record the selection of topics that a backend gets; ``None``: all.

        Raises:
            StoreIOError: the record cannot be written.
        """
        covers = {key: text for key, text in self.backend_state.covers.items() if key != name}
        if topics is not None:
            covers[name] = topics
        if covers != self.backend_state.covers:
            self._write(replace(self.backend_state, covers=covers))

    def log_was_cut(self, end: int, opened: Collection[str]) -> None:
        """Record, for lagging backends that are not open, that the log was truncated at ``end``.

        Raises:
            StoreIOError: the record cannot be written.
        """
        lagging = {
            name: at if name in opened else min(at, end)
            for name, at in self.backend_state.lagging.items()
        }
        if lagging != self.backend_state.lagging:
            self._write(replace(self.backend_state, lagging=lagging))

    @property
    def are_alike(self) -> bool:
        """Return whether all backends were equal, and no other program opened the store since."""
        return 0 < self.backend_state.alike == lock_stamp(self._paths)

    def note_alike(self) -> None:
        """Record that all backends are equal.

        Raises:
            StoreIOError: the record cannot be written.
        """
        stamp = lock_stamp(self._paths)
        if stamp != self.backend_state.alike:
            self._write(replace(self.backend_state, alike=stamp))

    def _write(self, state: BackendState) -> None:
        if not self._read_only:
            write_backend_state(self._paths, state)
        self.backend_state = state
