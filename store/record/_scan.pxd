# The records of a block of log bytes, for compiled code that iterates over them.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef enum:
    AT_END = 0
    ORDINARY = 1
    IRREGULAR = 2


cdef struct Scanned:
    # A record with the fields of ``ScannedRecord``; its holder keeps topic and properties alive.
    PyObject *topic
    const char *properties
    int64_t phy_offset, size, queue_id, queue_offset, flags, timestamp
    Py_ssize_t properties_size


cdef class BlockScan:
    cdef object _made, _rules, _topics, _learn, _check_one, _look, _topic, _found_topic
    cdef bytes _data, _name
    cdef int64_t _phy_offset, _left, _position, _behind, _last_end, _max_queue_offset
    cdef bint _check_crc, _fast
    cdef Scanned found  # the plain record that was read last

    cdef object record(self)
    cdef int step(self) except -1
    cdef object slow_step(self)
    cdef bint _is_ordinary(self, const char *record, Scanned *found) except -1
    cdef bint _name_topic(self, const char *name, Py_ssize_t size) except -1
    cdef bint _is_sound(self, const char *record, int64_t body, int64_t size) except -1
