# The state of messages during a put, for compiled code that encodes and writes them.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from cqstore.store.core._layout cimport PREPARED
from cqstore.store.record._known cimport KnownQueue


cdef struct Encoded:
    # One encoded message; keeps the objects of its pointers alive, which must not change meanwhile.
    const char *topic  # with its length before it
    const char *body
    const char *born_host
    const char *store_host
    KnownQueue *queue  # the queue's slot, while the slot has the queue's key
    PyObject *key
    PyObject *stored_at
    PyObject *tags
    PyObject *uniq_key
    PyObject *words
    PyObject *delay
    Py_ssize_t topic_size, body_size, properties_at, properties_size, size
    Py_ssize_t born_size, store_size  # of the message's two hosts
    int64_t magic, queue_id, flag, sys_flag, born, reconsumed, prepared
    int64_t offset, phy_offset  # the record's position, if known before it is written
    int32_t tags_code
    uint32_t crc
    bint is_scheduled


cdef inline bint is_queued(const Encoded *entry) noexcept nogil:
    """Return whether a record takes part in its queue: not PREPARED, not ROLLBACK."""
    return not entry.sys_flag & PREPARED


cdef class Scratch:
    cdef Encoded *entries
    cdef char *properties
    cdef Py_ssize_t capacity, room, used, count, total
    cdef Py_ssize_t max_body, max_total
    cdef list keys
    cdef bint is_held  # ``keys`` holds the pointers' objects: other threads may run

    cdef int begin(self, Py_ssize_t count) except -1
    cdef Encoded *more(self) except NULL
    cdef char *take(self, Py_ssize_t size) except NULL
