# A write batch: as columns, and in RocksDB's own format, see `_write_batch.pyx`.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from cqstore.cq_rocksdb.engine._capi cimport Handle

cdef enum:
    BATCH_HEAD = 12  # bytes before the records: sequence number and count
    COUNT_AT = 8
    LONGEST_HEAD = 16


cdef struct RecordHead:
    # Head of RocksDB's records of a family: a tag, and the family's number unless it is the first.
    char data[LONGEST_HEAD]
    size_t length


cdef class WriteBatchColumns:
    cdef const uint8_t[::1] prefixes  # memoryviews keep their buffers alive
    cdef const int64_t[::1] starts, prefix_index, queue_offset
    cdef const uint8_t[:, ::1] units
    cdef list delete_ranges, deletes, puts
    cdef int puts_family

    cdef int add_to(self, Handle writes, Handle *families) except -1
    cdef void _add_units(self, Handle writes, Handle family) noexcept nogil


cdef class BatchMemory:
    cdef char *data
    cdef size_t room

    cdef int make_room(self, size_t size) except -1
    cdef void keep_at_most(self, size_t room) noexcept


cdef RecordHead head_of(Handle batch, Handle family) noexcept


cdef inline size_t length_bytes(size_t length) noexcept nogil:
    """Return the size of a length in RocksDB's format: seven bits per byte, the lowest first."""
    cdef size_t count = 1
    while length >= 0x80:
        length >>= 7
        count += 1
    return count


cdef inline size_t put_length(char *out, size_t length) noexcept nogil:
    cdef size_t at = 0
    while length >= 0x80:
        out[at] = <char> (length | 0x80)
        length >>= 7
        at += 1
    out[at] = <char> length
    return at + 1


cdef inline size_t record_bytes(const RecordHead *head, size_t key, size_t value) noexcept nogil:
    return head.length + length_bytes(key) + key + length_bytes(value) + value


cdef inline size_t put_key(
    char *out, const RecordHead *head, const char *key, size_t length
) noexcept nogil:
    """Write the head and key of a record; return their size."""
    cdef size_t at = head.length
    memcpy(out, head.data, at)
    at += put_length(out + at, length)
    memcpy(out + at, key, length)
    return at + length


cdef inline size_t put_value(char *out, const char *value, size_t length) noexcept nogil:
    cdef size_t at = put_length(out, length)
    memcpy(out + at, value, length)
    return at + length
