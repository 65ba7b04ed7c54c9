# The table of the queues in use, see `_states.pyx`.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    ROW_FIELDS = 4  # last phy, last offset, first phy, first offset


cdef struct State:
    int64_t row[ROW_FIELDS]
    char *prefix  # NULL: the slot is free
    uint64_t hash
    uint32_t length
    bint used  # since the last pass of the hand


cdef struct Named:
    const char *prefix
    uint32_t length
    uint64_t hash
    const int64_t *row


cdef uint64_t seed  # different in each process


cdef inline uint64_t hash_of(const char *prefix, size_t length) noexcept nogil:
    cdef uint64_t hash = seed ^ length, word
    cdef size_t at = 0
    while at < length:
        word = 0
        memcpy(&word, prefix + at, min(length - at, sizeof(word)))
        hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15ULL
        hash ^= hash >> 29
        at += sizeof(word)
    hash *= <uint64_t> 0xBF58476D1CE4E5B9ULL
    return hash ^ hash >> 32


cdef class StateTable:
    cdef readonly Py_ssize_t capacity
    cdef State *states
    cdef int32_t *free_slots  # a stack
    cdef int32_t *index  # slots by hash; -1: none
    cdef Py_ssize_t size, free_count, count, hand
    cdef uint64_t mask  # index size minus one; the index is at least twice as large as the slots

    cdef void _release(self) noexcept
    cdef Py_ssize_t find(self, const char *prefix, size_t length, uint64_t hash) noexcept nogil
    cdef bint holds(self, Py_ssize_t slot, const char *prefix, size_t length) noexcept nogil
    cdef void add_all(self, const Named *named, Py_ssize_t count) noexcept nogil
    cdef void _add(self, Py_ssize_t free_slot, const Named *named) noexcept nogil
    cdef void drop(self, Py_ssize_t slot) noexcept nogil
    cdef void _link(self, Py_ssize_t slot) noexcept nogil
    cdef void _evict(self) noexcept nogil
    cdef void _grow(self, Py_ssize_t wanted) noexcept nogil
    cdef Py_ssize_t _use(self, bytes prefix) except -2
