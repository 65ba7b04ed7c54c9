# The log and its files, for compiled code that reads them.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from cqstore.store.core._bytes cimport fetch_ahead
from cqstore.store.core._layout cimport AT_SYS_FLAG, HEAD_BYTES, HOST_V4
from cqstore.store.log._tail cimport FilesByStart, LogTail

cdef enum:
    PARTS = 4


cdef struct Part:
    # The readable part of a file of the log: phy offsets, and the address of the byte at `start`.
    int64_t start, end
    const uint8_t *data


cdef class FastLog:
    cdef object log, readable
    cdef LogTail tail
    cdef FilesByStart files

    cdef int64_t end(self) except? -2
    cdef int64_t min_phy_offset(self) except? -2
    cdef bint open(self, int64_t phy, Part *part, list files) except -1
    cdef object _mapped(self, int64_t phy, int64_t *start, int64_t *there)


@cython.final
cdef class StoreTimes:
    cdef FastLog log
    cdef list files
    cdef Part parts[PARTS]
    cdef int64_t min_phy_offset, end
    cdef int last

    cdef int64_t of(self, int64_t phy, int32_t size, bint *is_ordinary) except? -2

    cdef inline void ahead(self, int64_t phy) noexcept:
        """Prefetch what ``of`` will read at ``phy``, if the last file used contains it."""
        cdef Part *part = &self.parts[self.last]
        if part.start <= phy < part.end:
            fetch_ahead(part.data + (phy - part.start) + AT_SYS_FLAG)
            fetch_ahead(part.data + (phy - part.start) + HEAD_BYTES + HOST_V4)
