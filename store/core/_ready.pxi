# What each read asks first. Part of `_reads.pyx`.

from store.queue._batch cimport UnitColumns
from store.service.running._flags cimport StateFlags

cdef class Ready:
    """Sees that a store is open and nothing waits; all else is its twin's. Any thread."""

    cdef StateFlags state
    cdef object pending, dispatcher, nothing, batch_class, otherwise
    cdef Py_ssize_t at_units, at_handed

    def __init__(self, StateFlags state not None, dispatcher, nothing, otherwise):
        """Take who may read, and what hands units on: ``nothing`` is what it has where none are.

        ``otherwise`` is the twin.
        """
        self.state, self.dispatcher, self.pending = state, dispatcher, dispatcher.pending
        self.nothing, self.batch_class = nothing, type(<UnitColumns?> dispatcher.pending.units)
        self.otherwise = otherwise
        self.at_units, self.at_handed = its_slot(self.pending, "units"), its_slot(dispatcher, "handed")

    def __call__(self):
        """Refuse after close; hand on what waits, so that the reader sees it."""
        cdef PyObject *units = in_slot(<PyObject *> self.pending, self.at_units)
        if (
            self.state.is_closed or self.state.is_forked
            or type(<object> units) is not self.batch_class
            or (<UnitColumns> units).end_phy_offset
            or in_slot(<PyObject *> self.dispatcher, self.at_handed) != <PyObject *> self.nothing
        ):
            self.otherwise()
