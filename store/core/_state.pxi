# Where the fields lie that a put finds and sets in the objects that own them, and whether what was
# written there may be acknowledged. Part of `_core.pyx`.

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


cdef class _StateSlots:
    """Fields of what waits. Made of the objects themselves."""

    cdef Py_ssize_t units, keys, last  # of what waits
    cdef Py_ssize_t full_at

    def __init__(self, pending, dispatcher):
        self.units, self.keys = its_slot(pending, "units"), its_slot(pending, "keys")
        self.last = its_slot(pending, "last")
        self.full_at = its_slot(dispatcher, "full_at")
