# Whether what was written into a map of the log may be acknowledged.

cdef extern from *:
    """
    #include <stdint.h>

    /* Behind what was written into a map: whether any map of the log has had a fault. */
    static inline int any_faults(const void *count) {
        __asm__ volatile("" ::: "memory");
        return __builtin_expect(__atomic_load_n((const int64_t *)count, __ATOMIC_ACQUIRE) != 0, 0);
    }
    """
    bint any_faults(const void *count) noexcept nogil
