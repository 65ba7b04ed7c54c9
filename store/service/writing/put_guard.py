"""PutGuard: the check of a put when something forbids it. The counterpart of ``ReadGuard``."""

from contextlib import suppress

from cqstore.store.errors import STALLING
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.runtime.meters import PutMeter
from cqstore.store.service.runtime.running_state import RunningState


class PutGuard:
    """Refuses puts of one store; it is not called for a put that nothing forbids. Any thread."""

    def __init__(self, state: RunningState, dispatcher: Dispatcher, meter: PutMeter) -> None:
        """``meter`` counts the refused messages."""
        self._state = state
        self._dispatcher = dispatcher
        self._meter = meter

    def refusal(self, messages: int = 1) -> PutMessageResult | None:
        """Return why nothing is put, ``None`` if a stalled dispatch has just found space.

        That many ``messages`` are counted as refused.

        Raises:
            StoreError: the reason is not lack of space.
        """
        state = self._state
        state.check_writable()
        if state.stalled:
            with suppress(*STALLING):
                self._dispatcher.drain()
        if not state.unwritable:
            return None
        refused = state.refuse_put()
        self._meter.not_ok(refused.status, messages)
        return refused
