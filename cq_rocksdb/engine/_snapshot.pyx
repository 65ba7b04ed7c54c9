# cython: language_level=3, boundscheck=False, wraparound=False
"""Snapshot: a database as of one moment."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from posix.unistd cimport getpid

from cqstore.cq_rocksdb.engine._capi cimport Handle, rocksdb
from cqstore.cq_rocksdb.engine._database cimport Database

from cqstore.cq_rocksdb.engine._capi import Error


@cython.no_gc_clear  # must be released before the database
cdef class Snapshot:
    """The database as of one moment; all reads through it are consistent.

    No read may run during the release; later reads are refused.
    """

    cdef Database database
    cdef Handle snapshot, read_options

    def __cinit__(self, Database database not None):
        database.check_open()
        self.database = database
        self.snapshot = rocksdb.create_snapshot(database.db)
        self.read_options = rocksdb.readoptions_create()
        rocksdb.readoptions_set_snapshot(self.read_options, self.snapshot)
        database.snapshots += 1

    def __dealloc__(self):
        self.release()

    def release(self):
        """Release the snapshot, before the database is closed. A second call does nothing."""
        if self.read_options != NULL:
            rocksdb.readoptions_destroy(self.read_options)
            self.read_options = NULL
            self.database.snapshots -= 1
            if self.database.db != NULL and getpid() == self.database.opened_by:
                rocksdb.release_snapshot(self.database.db, self.snapshot)

    cdef int _check_held(self) except -1:
        if self.read_options == NULL:
            raise Error("the snapshot is already released")
        return 0

    def get(self, int family, bytes key):
        """Return the value of ``key``; ``None``: there is none."""
        self._check_held()
        return self.database.get_with(self.read_options, family, key)

    def scan_into(self, bytes prefix, int64_t queue_offset, uint8_t[:, ::1] target):
        """As ``Database.scan_into``."""
        self._check_held()
        return self.database.scan_with(self.read_options, prefix, queue_offset, target)
