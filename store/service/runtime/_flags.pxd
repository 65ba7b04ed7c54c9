# Whether a store may be written and read, for compiled code that checks it.

cdef class StateFlags:
    cdef bint is_closed, is_forked, is_unwritable


cdef class EnteredFlag:
    cdef bint is_begun
