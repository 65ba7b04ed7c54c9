# cython: language_level=3, boundscheck=False, wraparound=False
"""Histogram: durations in buckets. Under the GIL each method is one step."""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from cqstore.store.service.runtime.histogram_snapshot import BOUNDS, HistogramSnapshot


cdef class Histogram:
    """Durations in buckets; each counts those up to its bound, the last one longer ones."""

    def __cinit__(self, bounds=None):
        cdef list given = [float(bound) for bound in bounds or BOUNDS]
        cdef Py_ssize_t at
        self.size = len(given)
        self.bounds = <double *> calloc(self.size + 1, sizeof(double))
        self.counts = <int64_t *> calloc(self.size + 1, sizeof(int64_t))
        if self.bounds == NULL or self.counts == NULL:
            raise MemoryError
        for at in range(self.size):
            self.bounds[at] = given[at]

    def __dealloc__(self):
        free(self.bounds)
        free(self.counts)

    cpdef observe(self, double seconds):
        """Count one duration."""
        cdef Py_ssize_t low = 0, high = self.size, middle
        while low < high:
            middle = (low + high) // 2
            if self.bounds[middle] < seconds:
                low = middle + 1
            else:
                high = middle
        self.counts[low] += 1
        self.total += seconds

    def restore(self, before):
        """Add the counts of another histogram with the same bounds."""
        cdef list more = list(before.counts)
        cdef double total = before.total_seconds
        cdef Py_ssize_t at
        if len(more) != self.size + 1:
            raise ValueError("a histogram of other bounds")
        for at in range(self.size + 1):
            self.counts[at] += more[at]
        self.total += total

    def snapshot(self):
        """Return the observations so far."""
        cdef double total = self.total
        counts = tuple([self.counts[at] for at in range(self.size + 1)])
        bounds = tuple([self.bounds[at] for at in range(self.size)])
        return HistogramSnapshot(counts, total, bounds)
