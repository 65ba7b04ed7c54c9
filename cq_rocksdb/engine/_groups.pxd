# The units of a batch by queue, see `_groups.pyx`.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from cqstore.cq_rocksdb.engine._states cimport ROW_FIELDS


cdef struct Group:
    # The units of one queue; `at` is the position of its next record in the write batch.
    int64_t row[ROW_FIELDS]  # row in the table, then the row after the write
    int64_t first_offset, next_offset, first_phy, last_phy
    size_t name  # where its prefix begins in `names`
    uint64_t hash
    size_t at
    uint32_t count, length
    int32_t slot
    bint is_irregular  # left to the plan


cdef struct Placed:
    uint64_t head  # of the prefix, after the common part
    int32_t group


cdef class QueueGroups:
    cdef readonly bint is_fast
    cdef readonly const uint8_t[::1] queue_index, queue_offset, units  # these keep their buffers
    cdef Group *groups
    cdef Placed *order
    cdef Placed *spare
    cdef char *names
    cdef size_t names_used, names_room
    cdef readonly Py_ssize_t queues  # in the batch
    cdef Py_ssize_t count  # units in the batch
    cdef Py_ssize_t used, left_out  # queues in `order`, and others with units
    cdef bint has_irregular  # irregular queues are still in `order`

    cdef bint _name(self, Group *group, key, Py_ssize_t max_topic, bytes reserved) except -1
    cdef char *_room_for_name(self, size_t length) except NULL
    cdef void _put_name(
        self, char *out, const char *topic, size_t length, int32_t queue_id
    ) noexcept nogil
    cdef bint _group(self, int64_t max_offset) noexcept nogil
    cdef void _sort(self) noexcept nogil
    cdef uint64_t _head(self, const Group *group, size_t common) noexcept nogil
    cdef bint _is_before(self, Py_ssize_t one, Py_ssize_t other) noexcept nogil
    cdef bint _is_less(self, const Placed *one, const Placed *other) noexcept nogil
    cdef void _merge_sort(self) noexcept nogil
    cdef void leave_irregular(self) noexcept nogil
