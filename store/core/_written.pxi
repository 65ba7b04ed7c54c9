# Whether what was written into a map may be acknowledged. Part of `_core.pyx`.

cdef extern from *:
    """
    /* Behind what was written into a map: whether any map of the log has had a fault. */
    static inline int any_faults(const void *count) {
        __asm__ volatile("" ::: "memory");
        return __builtin_expect(__atomic_load_n((const int64_t *)count, __ATOMIC_ACQUIRE) != 0, 0);
    }
    """
    bint any_faults(const void *count) noexcept nogil


cdef int _check_written(object file, object target, object state) except -1:
    """Refuse to acknowledge what the file of the map may not have: the store has failed then."""
    try:
        file.check_written(target)
    except BaseException as exc:
        state.fail(exc)
        raise
    return 0
