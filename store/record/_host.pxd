# The bytes of a host, for compiled code that reads them.

cdef class HostWire:
    cdef public object wire
