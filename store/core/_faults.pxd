# Which parts of a map are valid, for compiled code that reads maps. Only `_faults.pyx` has the
# handler, the guards and their count.

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <stdint.h>

    /* Whether any map of the log has faults, after all earlier reads: see `log_map_patch`. */
    static inline int faults_seen(const int64_t *maps) {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        __asm__ volatile("" ::: "memory");
        return __atomic_load_n(maps, __ATOMIC_RELAXED) != 0;
    }
    """
    bint faults_seen(const int64_t *maps) noexcept nogil

cdef int64_t faulty_maps  # of the log's maps that are registered now

cdef bint handle_bus_errors() noexcept
cdef bint copy_mapped(void *to, const void *start, size_t size) noexcept nogil
cdef bint is_of_whole_map(const void *address) noexcept nogil
cdef object again_if_lost(const uint8_t *data, int64_t size)


cdef inline bint log_faults_seen() noexcept nogil:
    """Return whether any map of the log has faults; called after a read or write."""
    return faults_seen(&faulty_maps)
