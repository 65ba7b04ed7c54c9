# cython: language_level=3, boundscheck=False, wraparound=False
"""NativeTableWriter: one SST file, for ``Database.ingest``."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from cqstore.cq_rocksdb.engine._capi cimport Handle, check, rocksdb
from cqstore.cq_rocksdb.engine._keys cimport MAX_PREFIX, PLACE_BYTES, UNIT_BYTES
from cqstore.cq_rocksdb.engine._options cimport Options
from cqstore.store.core._bytes cimport store64


@cython.no_gc_clear  # freed before its options
cdef class NativeTableWriter:
    """Writes one SST file; keys must be added in ascending order."""

    cdef Handle writer, env
    cdef Options options

    def __cinit__(self, bytes path, Options options):
        cdef char *error = NULL
        cdef const char *name = path
        self.options = options
        self.env = rocksdb.envoptions_create()
        self.writer = rocksdb.sstfilewriter_create(self.env, options.handle)
        with nogil:
            rocksdb.sstfilewriter_open(self.writer, name, &error)
        check(error)

    def __dealloc__(self):
        if self.writer != NULL:
            rocksdb.sstfilewriter_destroy(self.writer)
        if self.env != NULL:
            rocksdb.envoptions_destroy(self.env)

    def put(self, bytes key, bytes value):
        """Add one entry."""
        cdef char *error = NULL
        rocksdb.sstfilewriter_put(self.writer, key, len(key), value, len(value), &error)
        check(error)

    def put_units(self, bytes prefix, int64_t queue_offset, const uint8_t[:, ::1] units):
        """Add consecutive units of one queue."""
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = len(prefix)
        cdef Py_ssize_t at
        cdef char *error = NULL
        if length > MAX_PREFIX or units.shape[1] != UNIT_BYTES:
            raise ValueError("invalid length of a prefix or a unit")
        memcpy(key, <const char *>prefix, length)
        with nogil:
            for at in range(units.shape[0]):
                store64(key + length, queue_offset + at)
                rocksdb.sstfilewriter_put(
                    self.writer, key, length + PLACE_BYTES, <const char *>&units[at, 0], UNIT_BYTES,
                    &error,
                )
                if error != NULL:
                    break
        check(error)

    def finish(self):
        """Complete the file and sync it; return its bytes."""
        cdef char *error = NULL
        cdef uint64_t size = 0
        with nogil:
            rocksdb.sstfilewriter_finish(self.writer, &error)
        check(error)
        rocksdb.sstfilewriter_file_size(self.writer, &size)
        return size
