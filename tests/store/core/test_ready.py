"""The check before each read: the core sees that all is well; all else takes the slow path."""

from itertools import product
from typing import Any

import pytest

from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.dispatching._waiting import InFlight, Waiting
from cqstore.store.service.reading._ready import Ready
from cqstore.store.service.runtime._flags import StateFlags

NOTHING = object()


class OtherBatch(UnitBatch):
    """Of another class than the batch that was there first."""


class Dispatcher(InFlight):
    pending: Waiting


def test_the_twin_is_asked_unless_the_store_is_open_and_nothing_waits() -> None:
    state: Any = StateFlags()
    pending: Any = Waiting()
    dispatcher: Any = Dispatcher()
    pending.units, dispatcher.pending = UnitBatch(), pending
    requested: list[int] = []
    ready = Ready(state, dispatcher, NOTHING, lambda: requested.append(1))
    ends = (0, 1, 1 << 62, -1)
    for closed, forked, handed, end in product((False, True), (False, True), (NOTHING, 5), ends):
        state.closed, state.forked, dispatcher.handed = closed, forked, handed
        pending.units = UnitBatch()
        pending.units.end_phy_offset = end
        requested.clear()
        ready()
        well = not closed and not forked and handed is NOTHING and end == 0
        assert requested == ([] if well else [1]), (closed, forked, handed, end)
    state.closed = state.forked = False
    dispatcher.handed = NOTHING
    for units in (OtherBatch(), None):
        pending.units = units
        requested.clear()
        ready()
        assert requested == [1]


def test_where_there_is_no_batch_nobody_is_ready() -> None:
    dispatcher: Any = Dispatcher()
    dispatcher.pending, dispatcher.handed = Waiting(), NOTHING
    with pytest.raises(TypeError, match="no batch"):
        Ready(StateFlags(), dispatcher, NOTHING, lambda: None)  # type: ignore[arg-type]


def test_what_the_twin_refuses_is_refused() -> None:
    state: Any = StateFlags()
    pending: Any = Waiting()
    dispatcher: Any = Dispatcher()
    pending.units, dispatcher.pending, dispatcher.handed = UnitBatch(), pending, NOTHING
    state.closed, state.forked, pending.units.end_phy_offset = True, False, 0

    def refuse() -> None:
        raise ValueError("closed")

    with pytest.raises(ValueError, match="closed"):
        Ready(state, dispatcher, NOTHING, refuse)()
