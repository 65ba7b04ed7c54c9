# What was appended and waits, for compiled code that adds to it, and for reads.

from libc.stdint cimport int64_t

from store.queue._batch cimport UnitColumns


cdef class Waiting:
    cdef public UnitColumns units
    cdef public object keys, last


cdef class HandedOn:
    cdef int64_t full
    cdef public object handed
