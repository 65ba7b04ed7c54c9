"""ReadGuard: what each read asks first."""

from collections.abc import Callable
from contextlib import suppress

from cqstore.store.errors import STALLING
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import NOTHING
from cqstore.store.service.reading import _ready
from cqstore.store.service.runtime.running_state import RunningState


class _Readying:
    """Refuses after close, and dispatches what waits, so that the reader sees it. Any thread.

    While the dispatch is stalled readers see what queues and index have.
    """

    def __init__(self, state: RunningState, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher

    def __call__(self) -> None:
        """Refuse if the store is closed; else dispatch what waits, unless the dispatch is stalled.

        Raises:
            StoreClosedError, StoreFailedError, StoreIOError: what waits cannot be dispatched.
        """
        state = self._state
        if state.closed or state.forked:
            state.check_open()
        if self._dispatcher.has_undispatched and state.failure is None and not state.stalled:
            with suppress(*STALLING):
                self._dispatcher.drain()


def read_guard_of(state: RunningState, dispatcher: Dispatcher) -> Callable[[], None]:
    """Return what the reads of one store ask; the core sees for itself that all is well."""
    return _ready.Ready(state, dispatcher, NOTHING, _Readying(state, dispatcher))
