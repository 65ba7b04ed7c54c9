# Histograms, for compiled code that observes durations.

from libc.stdint cimport int64_t


cdef class Histogram:
    cdef double *bounds
    cdef int64_t *counts  # one more than `bounds`
    cdef Py_ssize_t size
    cdef double total

    cpdef observe(self, double seconds)
