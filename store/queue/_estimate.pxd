# Filters by tags codes, for compiled code that reads units.

from libc.stdint cimport int32_t, int64_t

cdef enum:
    MAX_CODES = 16


cdef class FastFilter:
    cdef int32_t codes[MAX_CODES]
    cdef Py_ssize_t count
    cdef bint everything

    cdef bint matches(self, int64_t tags_code) noexcept nogil
