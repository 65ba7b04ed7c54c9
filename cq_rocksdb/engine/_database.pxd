# An open database, see `_database.pyx`.

from libc.stdint cimport int64_t, uint8_t

from cqstore.cq_rocksdb.engine._capi cimport Handle
from cqstore.cq_rocksdb.engine._options cimport CompactionFilter
from cqstore.cq_rocksdb.engine._write_batch cimport BatchMemory

cdef enum:
    IDLE_ITERATORS = 4
    MAX_USES = 256  # uses of idle iterators until they are released, so that files can be deleted


cdef class Database:
    cdef Handle db, writes, write_options, read_options, flush_options, compact_options
    cdef Handle *families
    cdef int family_count
    cdef list options  # kept: the database refers to them
    cdef BatchMemory built  # of the jobs' writes
    cdef Handle idle[IDLE_ITERATORS]  # over units; each is up to date
    cdef int idle_count, idle_uses
    cdef int opened_by  # process id; a child process releases nothing
    cdef int64_t changes  # number of writes; an iterator from before the last write is out of date
    cdef readonly CompactionFilter filter
    cdef readonly int snapshots  # number of unreleased snapshots

    cdef int check_open(self) except -1
    cdef release_iterators(self)
    cdef Handle _iterator(self)
    cdef void _return_iterator(self, Handle units, int64_t changes)
    cdef object get_with(self, Handle read_options, int family, bytes key)
    cdef tuple scan_with(
        self, Handle read_options, bytes prefix, int64_t queue_offset, uint8_t[:, ::1] target
    )
    cdef tuple _scan(
        self, Handle read_options, bytes prefix, int64_t queue_offset, int64_t count,
        uint8_t *target,
    )
