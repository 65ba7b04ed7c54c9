# cython: language_level=3, boundscheck=False, wraparound=False
"""Scratch: memory for the encoded messages of one put, before they are written."""

from libc.stdlib cimport free, realloc


cdef class Scratch:
    """The encoded messages of one call; the next call starts over."""

    def __cinit__(self, Py_ssize_t max_body, Py_ssize_t max_total, *, bint is_held=False):
        self.keys, self.is_held = [], is_held
        self.max_body, self.max_total = max_body, max_total

    def __dealloc__(self):
        free(self.entries)
        free(self.properties)

    cdef int begin(self, Py_ssize_t count) except -1:
        cdef Encoded *grown
        self.used = self.count = self.total = 0
        self.keys.clear()
        if count > self.capacity:
            grown = <Encoded *> realloc(self.entries, count * sizeof(Encoded))
            if grown == NULL:
                raise MemoryError
            self.entries, self.capacity = grown, count
        return 0

    cdef Encoded *more(self) except NULL:
        """Return memory for one more encoded message."""
        cdef Encoded *grown
        if self.count == self.capacity:
            grown = <Encoded *> realloc(self.entries, 2 * self.capacity * sizeof(Encoded))
            if grown == NULL:
                raise MemoryError
            self.entries, self.capacity = grown, 2 * self.capacity
        self.count += 1
        return &self.entries[self.count - 1]

    cdef char *take(self, Py_ssize_t size) except NULL:
        """Return memory for ``size`` more bytes of properties."""
        cdef char *grown
        if self.used + size >= self.room:  # `>=`: an empty value needs an address too
            grown = <char *> realloc(self.properties, 2 * self.room + size + 256)
            if grown == NULL:
                raise MemoryError
            self.properties, self.room = grown, 2 * self.room + size + 256
        return self.properties + self.used
