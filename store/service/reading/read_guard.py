"""ReadGuard: the check before each read."""

from collections.abc import Callable
from contextlib import suppress

from cqstore.store.errors import STALLING
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import NOTHING
from cqstore.store.service.reading import _ready
from cqstore.store.service.runtime.running_state import RunningState


class _Readying:
    """Refuses after close, and dispatches waiting units, so that the reader sees them. Any thread.

    While the dispatch is stalled readers see only units and keys that are stored.
    """

    def __init__(self, state: RunningState, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher

    def __call__(self) -> None:
        """Refuse if the store is closed; else dispatch waiting units, unless it is stalled.

        Raises:
            StoreClosedError, StoreFailedError, StoreIOError: the store is closed, or the waiting
                units cannot be dispatched.
        """
        state = self._state
        if state.closed or state.forked:
            state.check_open()
        if self._dispatcher.has_undispatched and state.failure is None and not state.stalled:
            with suppress(*STALLING):
                self._dispatcher.drain()


def read_guard_of(state: RunningState, dispatcher: Dispatcher) -> Callable[[], None]:
    """Return the check of one store's reads; the usual case runs in compiled code."""
    return _ready.Ready(state, dispatcher, NOTHING, _Readying(state, dispatcher))
