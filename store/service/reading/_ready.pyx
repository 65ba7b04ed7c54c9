# cython: language_level=3, boundscheck=False, wraparound=False
"""Ready: what each read asks first."""

from store.queue._batch cimport UnitColumns
from store.service.dispatching._waiting cimport InFlight, Waiting
from store.service.runtime._flags cimport StateFlags


cdef class Ready:
    """Sees that a store is open and nothing waits; all else is its twin's. Any thread."""

    cdef StateFlags state
    cdef InFlight dispatcher
    cdef Waiting pending
    cdef object nothing, batch_class, otherwise

    def __init__(self, StateFlags state not None, InFlight dispatcher not None, nothing, otherwise):
        """Take who may read, and what hands units on: ``nothing`` is what it has where none are.

        ``otherwise`` is the twin.
        """
        self.state, self.dispatcher, self.pending = state, dispatcher, <Waiting?> dispatcher.pending
        self.nothing, self.batch_class = nothing, type(self.pending.units)
        self.otherwise = otherwise
        if self.pending.units is None:
            raise TypeError("there is no batch of units")

    def __call__(self):
        """Refuse after close; hand on what waits, so that the reader sees it."""
        cdef UnitColumns units = self.pending.units
        if (
            self.state.is_closed or self.state.is_forked
            or type(units) is not self.batch_class or units.end_phy_offset
            or self.dispatcher.handed is not self.nothing
        ):
            self.otherwise()
