# Encoding of messages, for the compiled code of a put.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from cqstore.store.record._known cimport InternTable
from cqstore.store.record._message cimport Message
from cqstore.store.record._scratch cimport Encoded, Scratch


cdef Py_ssize_t batched(object batch) noexcept


cdef class FastEncoder:
    cdef InternTable _known
    cdef object _host, _topics, _scheduled
    cdef bytes _seal  # the name of the checksum property; None: records have no checksum property
    cdef dict _next
    cdef bint _reads_delay  # properties may request a delay

    cdef bint encode(self, PyObject *given, Scratch scratch, int64_t now) except -1
    cdef bint encode_rest(
        self, Message message, Encoded *entry, Scratch scratch, int64_t now
    ) except -1
    cdef bint encode_batch(self, object given, Scratch scratch, int64_t now) except -1
    cdef bint take_topic(self, Encoded *entry, tuple learnt) except -1
    cdef bint find_queue(self, Encoded *entry, Scratch scratch) except -1

    cdef bint _encode_head(self, Message message, Encoded *entry, int64_t now) except -1
    cdef bint _encode_body(self, Encoded *entry, PyObject *body, Scratch scratch) except -1
    cdef bint _encode_host(self, const char **wire, Py_ssize_t *size, PyObject *host) except -1
    cdef bint _encode_properties(
        self, Encoded *entry, PyObject *properties, Scratch scratch
    ) except -1
    cdef bint _take_properties(
        self, Encoded *entry, const char *data, Py_ssize_t size, Scratch scratch
    ) except -1
    cdef bint _end_properties(self, Encoded *entry, Scratch scratch) except -1
    cdef bint _find_topic(self, Encoded *entry, PyObject *topic) except -1
