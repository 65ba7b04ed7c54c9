# cython: language_level=3, boundscheck=False, wraparound=False
"""Ready: the check before each read."""

from cqstore.store.queue._batch cimport UnitColumns
from cqstore.store.service.dispatching._waiting cimport InFlight, Waiting
from cqstore.store.service.runtime._flags cimport StateFlags


cdef class Ready:
    """Checks that a store is open and no units wait; otherwise takes the slow path. Any thread."""

    cdef StateFlags state
    cdef InFlight dispatcher
    cdef Waiting pending
    cdef object nothing, batch_class, otherwise

    def __init__(self, StateFlags state not None, InFlight dispatcher not None, nothing, otherwise):
        """Set the store's state and its dispatcher; ``nothing`` is its ``handed`` if idle.

        ``otherwise`` is the slow path.
        """
        self.state, self.dispatcher, self.pending = state, dispatcher, <Waiting?> dispatcher.pending
        self.nothing, self.batch_class = nothing, type(self.pending.units)
        self.otherwise = otherwise
        if self.pending.units is None:
            raise TypeError("there is no batch of units")

    def __call__(self):
        """Refuse after close; dispatch waiting units, so that the reader sees them."""
        cdef UnitColumns units = self.pending.units
        if (
            self.state.is_closed or self.state.is_forked
            or type(units) is not self.batch_class or units.end_phy_offset
            or self.dispatcher.handed is not self.nothing
        ):
            self.otherwise()
