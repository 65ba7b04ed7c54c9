# Files that are mapped for reading, for compiled code.

from libc.stdint cimport int64_t, uint8_t


cdef class FileMap:
    cdef int fd
    cdef object owner
    cdef const uint8_t *data
    cdef int64_t size
    cdef uint8_t *seen  # one bit per page

    cdef bint ends_before(self, int64_t position) noexcept nogil
    cdef bint read(self, void *to, int64_t size, int64_t position) noexcept nogil
    cdef bint read_again(self, void *to, int64_t size, int64_t position) noexcept nogil
    cdef void saw(self, int64_t size, int64_t position) noexcept
