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
    """Fields of the log, its files, what waits, and who may write. Made of the objects themselves."""

    cdef object file_class
    cdef Py_ssize_t current, prepared, end, appended_records  # of the log
    cdef Py_ssize_t file_from_offset, wrote_position, heap, mapped  # of a file
    cdef Py_ssize_t units, keys, last  # of what waits
    cdef Py_ssize_t begun, unwritable, full_at

    def __init__(self, log, file_class, pending, state, dispatcher):
        self.file_class = file_class
        self.current, self.prepared = its_slot(log, "current"), its_slot(log, "prepared")
        self.end, self.appended_records = its_slot(log, "end"), its_slot(log, "appended_records")
        self.file_from_offset = slot_of_class(file_class, "file_from_offset")
        self.wrote_position = slot_of_class(file_class, "wrote_position")
        self.heap, self.mapped = slot_of_class(file_class, "heap"), slot_of_class(file_class, "mapped")
        self.units, self.keys = its_slot(pending, "units"), its_slot(pending, "keys")
        self.last = its_slot(pending, "last")
        self.begun, self.unwritable = its_slot(pending.appending, "begun"), its_slot(state, "unwritable")
        self.full_at = its_slot(dispatcher, "full_at")
