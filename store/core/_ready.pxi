# What each read asks first. Part of `_reads.pyx`.

cdef class Ready:
    """Sees that a store is open and nothing waits; all else is its twin's. Any thread."""

    cdef object state, pending, dispatcher, nothing, batch_class, otherwise
    cdef Py_ssize_t at_closed, at_forked, at_units, at_end, at_handed

    def __init__(self, state, dispatcher, nothing, otherwise):
        """Take who may read, and what hands units on: ``nothing`` is what it has where none are.

        ``otherwise`` is the twin.
        """
        self.state, self.dispatcher, self.pending = state, dispatcher, dispatcher.pending
        self.nothing, self.batch_class = nothing, type(dispatcher.pending.units)
        self.otherwise = otherwise
        self.at_closed, self.at_forked = its_slot(state, "closed"), its_slot(state, "forked")
        self.at_units, self.at_handed = its_slot(self.pending, "units"), its_slot(dispatcher, "handed")
        self.at_end = slot_of_class(self.batch_class, "end_phy_offset")

    def __call__(self):
        """Refuse after close; hand on what waits, so that the reader sees it."""
        cdef PyObject *state = <PyObject *> self.state
        cdef PyObject *units = in_slot(<PyObject *> self.pending, self.at_units)
        cdef int64_t end = 0
        if (
            in_slot(state, self.at_closed) != Py_False or in_slot(state, self.at_forked) != Py_False
            or type(<object> units) is not self.batch_class
            or not whole_number(in_slot(units, self.at_end), 0, 0, &end)
            or in_slot(<PyObject *> self.dispatcher, self.at_handed) != <PyObject *> self.nothing
        ):
            self.otherwise()
