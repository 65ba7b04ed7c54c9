"""AbortMarker: the file ``abort`` while a store is being opened."""

from collections.abc import Callable
from types import TracebackType

from cqstore.store.errors import RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.journals.store_lock import mark_closed, mark_open
from cqstore.store.paths import StorePaths


class AbortMarker:
    """Marks a store as open; an opening that changed nothing removes the mark again.

    So a refusal after a clean stop does not make the next open recover as after a crash.
    """

    def __init__(self, paths: StorePaths) -> None:
        self._paths = paths
        self._marked = False
        self._changed = False

    def mark(self) -> None:
        """Mark the store as open, unless this opening has done so before."""
        if not self._marked:
            mark_open(self._paths)
            self._marked = True

    def changing(self) -> None:
        """Record that the opening may leave unfinished changes from here on."""
        self._changed = True

    def stay(self) -> None:
        """Keep the mark: the store is open, whatever happens."""
        self._marked = False

    def closing(self, close: Callable[[], object]) -> None:
        """Close a component; if that fails the mark stays: the first error counts."""
        try:
            close()
        except StoreError:
            self.stay()

    def undo(
        self,
        _kind: type[BaseException] | None,
        exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Remove the mark after ``exc``, if nothing was changed, or nothing was begun."""
        refused = isinstance(exc, RefusedStoreError | StoreConfigError)
        if self._marked and (refused or not self._changed):
            mark_closed(self._paths)
