# Results of a pull or a query, for compiled code that reads.

from libc.stdint cimport int64_t

from cqstore.store.record._parse cimport Found


cdef class GetMessageResult:
    cdef public object status, next_begin_offset, min_offset, max_offset, total_bytes, hole
    cdef object _records, _offsets, _damaged
    cdef list files  # of ``BufferRef``
    cdef Found *found
    cdef Py_ssize_t count
    cdef int64_t first

    cdef bytes _read_again(self, bytes gathered)


cdef class QueryMessageResult(list):
    cdef public bint has_more
