# Appended records that wait, for compiled code that adds to them, and for reads.

from libc.stdint cimport int64_t

from cqstore.store.index._batch cimport KeyColumns
from cqstore.store.queue._batch cimport UnitColumns


cdef class Waiting:
    cdef public UnitColumns units
    cdef public KeyColumns keys
    cdef public object last


cdef class InFlight:
    cdef int64_t full
    cdef public object handed
