# Units that are being added to queues, for compiled code.

from libc.stdint cimport int32_t, int64_t

from cqstore.store.core._column cimport Column


cdef class UnitColumns:
    cdef readonly list queues
    cdef readonly dict index_of
    cdef readonly Column queue_index, queue_offset, units
    cdef public int64_t end_phy_offset

    cdef int index(self, tuple key) except -1
    cdef int make_room(self, Py_ssize_t more) except -1
    cdef void add_at(
        self, int32_t index, int64_t queue_offset, int64_t phy_offset, int32_t size,
        int64_t tags_code, int64_t store_timestamp,
    ) noexcept
