# cython: language_level=3, boundscheck=False, wraparound=False
"""A write batch: as columns, passed to RocksDB record by record, or in RocksDB's own format.

The format is that of RocksDB's log (`db/write_batch.cc`): sequence number, count, then one record
per change: a tag, the family's number unless it is the first, key and value with their lengths.
RocksDB itself provides the head of a family's records; it copies the batch and checks the count.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from cqstore.cq_rocksdb.engine._capi cimport Handle, rocksdb
from cqstore.cq_rocksdb.engine._keys cimport MAX_PREFIX, PLACE_BYTES, UNIT_BYTES
from cqstore.store.core._bytes cimport store64


cdef class WriteBatchColumns:
    """One write, see ``EngineBatch``; prefix *i* is ``prefixes[starts[i]:starts[i + 1]]``.

    Values must be checked before: prefixes of at most ``MAX_PREFIX`` bytes, columns of one length.
    """

    def __cinit__(
        self, const uint8_t[::1] prefixes, const int64_t[::1] starts,
        const int64_t[::1] prefix_index, const int64_t[::1] queue_offset,
        const uint8_t[:, ::1] units, list delete_ranges not None, list deletes not None,
        int puts_family, list puts not None,
    ):
        self.prefixes, self.starts, self.prefix_index = prefixes, starts, prefix_index
        self.queue_offset, self.units = queue_offset, units
        self.delete_ranges, self.deletes = delete_ranges, deletes
        self.puts_family, self.puts = puts_family, puts

    cdef int add_to(self, Handle writes, Handle *families) except -1:
        """Add all changes to a write batch of RocksDB."""
        cdef bytes start, end, key, value
        for number, start, end in self.delete_ranges:
            rocksdb.writebatch_delete_range_cf(
                writes, families[<int>number], start, len(start), end, len(end)
            )
        for number, key in self.deletes:
            rocksdb.writebatch_delete_cf(writes, families[<int>number], key, len(key))
        with nogil:
            self._add_units(writes, families[0])
        for key, value in self.puts:
            rocksdb.writebatch_put_cf(
                writes, families[self.puts_family], key, len(key), value, len(value)
            )
        return 0

    cdef void _add_units(self, Handle writes, Handle family) noexcept nogil:
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = 0
        cdef int64_t prefix, current = -1
        cdef Py_ssize_t at, count = self.prefix_index.shape[0]
        if not count:
            return
        cdef const uint8_t *names = &self.prefixes[0]
        cdef const int64_t *starts = &self.starts[0]
        cdef const int64_t *prefix_index = &self.prefix_index[0]
        cdef const int64_t *queue_offset = &self.queue_offset[0]
        for at in range(count):
            prefix = prefix_index[at]
            if prefix != current:
                current = prefix
                length = starts[prefix + 1] - starts[prefix]
                memcpy(key, names + starts[prefix], length)
            store64(key + length, queue_offset[at])
            rocksdb.writebatch_put_cf(
                writes, family, key, length + PLACE_BYTES, <const char *>&self.units[at, 0],
                UNIT_BYTES,
            )


cdef class BatchMemory:
    """Memory in which a write batch is built.

    It is reused for the next one: allocating it anew takes a fifth of the time of a whole write,
    because the system clears it page by page.
    """

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int make_room(self, size_t size) except -1:
        """Make room for ``size`` bytes at ``data``; the previous content may be lost."""
        if size > self.room:
            self.keep_at_most(0)
            self.data = <char *> PyMem_RawMalloc(size)
            if self.data == NULL:
                raise MemoryError
            self.room = size
        return 0

    cdef void keep_at_most(self, size_t room) noexcept:
        """Free the memory if it is larger than ``room``."""
        if self.room > room:
            PyMem_RawFree(self.data)
            self.data, self.room = NULL, 0


cdef RecordHead head_of(Handle batch, Handle family) noexcept:
    """Return the head of RocksDB's records of a family; length 0: the format is unknown."""
    cdef RecordHead head
    cdef size_t size = 0
    cdef const char *data
    head.length = 0
    rocksdb.writebatch_clear(batch)
    rocksdb.writebatch_put_cf(batch, family, "k", 1, "v", 1)
    data = rocksdb.writebatch_data(batch, &size)
    if BATCH_HEAD + 4 < size <= BATCH_HEAD + 4 + LONGEST_HEAD:
        head.length = size - BATCH_HEAD - 4
        memcpy(head.data, data + BATCH_HEAD, head.length)
    rocksdb.writebatch_clear(batch)
    return head
