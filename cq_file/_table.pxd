# State of file queues for compiled code: the table, the ends of a queue, open files.

from libc.stdint cimport int32_t, int64_t

from cqstore.store.core._maps cimport FileMap
from cqstore.store.queue._time_search cimport SampledTimes


cdef class OpenFile:
    cdef readonly int number
    cdef readonly str path
    cdef bint is_open, is_used
    cdef int64_t read_count
    cdef public FileMap mapped


cdef class FileRow:
    cdef public object access
    cdef public str topic
    cdef public list starts
    cdef public int32_t queue_id
    cdef bint is_unproven  # of a simple queue: the last unit may be torn
    cdef int64_t _generation


cdef class QueueEnds(FileRow):
    cdef int64_t low, high  # queue offsets of the first unit, and after the last one
    cdef int64_t last_record, last_record_end
    cdef str tail  # path of the file for the next unit
    cdef int64_t tail_at
    # Cached first offset for a log's minimum, and the generation in which it was found.
    cdef int64_t min_generation, min_log, min_found
    cdef int64_t known_start
    cdef str known_file
    cdef SampledTimes times  # of searches by time, or None
    cdef int64_t batch  # number of the batch that plans to write to it


cdef class SimpleQueues:
    cdef bint is_closed
    cdef public dict simple
    cdef public object fast

    cdef object named(self, topic, queue_id)
    cdef object found(self, topic, queue_id)
