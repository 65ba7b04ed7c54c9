# Whether a store may be written to and read, for compiled code that asks.

cdef class StateFlags:
    cdef bint is_closed, is_forked, is_unwritable


cdef class EnteredFlag:
    cdef bint is_begun
