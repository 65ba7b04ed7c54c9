# Reads of a queue's units through an iterator, see `_units.pyx`.

from libc.stdint cimport int64_t, uint8_t

from cqstore.cq_rocksdb.engine._capi cimport Handle

cdef enum Stop:
    FULL = 0
    NO_MORE = 1
    HOLE = 2
    TOO_SHORT = 3

cdef int64_t copy_units(
    Handle units, const char *key, size_t length, int64_t queue_offset, int64_t count,
    uint8_t *target, int *stop, int64_t *there,
) noexcept nogil
cdef bint find_unit(Handle units, const char *key, size_t length, bint forward) noexcept nogil
cdef int64_t search_units(
    Handle units, char *key, size_t length, int64_t low, int64_t high, int64_t timestamp,
    bint upper, int64_t min_phy, int64_t max_phy, char **error,
) noexcept nogil
