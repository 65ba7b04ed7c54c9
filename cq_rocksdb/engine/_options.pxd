# Options of a database, see `_options.pyx`.

from libc.stdint cimport int64_t

from cqstore.cq_rocksdb.engine._capi cimport Handle

cdef extern from *:
    """
    #include <stdint.h>

    /* Shared by the compaction filter and the engine: any thread, no lock. */
    typedef struct { int64_t minimum; int64_t dropped; int64_t seen; } FilterState;
    """
    ctypedef struct FilterState:
        int64_t minimum
        int64_t dropped
        int64_t seen


cdef class Options:
    cdef Handle handle
    cdef void (*destroy)(Handle) noexcept nogil
    cdef list used  # objects in use by this one, freed after it
    cdef public list lacking


cdef class CompactionFilter:
    cdef Handle handle
    cdef FilterState *state
