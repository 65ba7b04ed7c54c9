# Encoding of messages, for the compiled code of a put.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from cqstore.store.record._known cimport InternTable
from cqstore.store.record._message cimport Message
from cqstore.store.record._scratch cimport Plain, Scratch


cdef class PlainEncoder:
    cdef InternTable _known
    cdef object _host, _topics, _scheduled, _timer
    cdef bytes _seal  # the name of the checksum property; None: records have no checksum property
    cdef dict _next
    cdef bint _refuses_delay, _has_light

    cdef bint encode(self, PyObject *given, Scratch scratch, int64_t now) except -1
    cdef bint encode_rest(
        self, Message message, Plain *plain, Scratch scratch, int64_t now
    ) except -1
    cdef bint encode_batch(self, object given, Scratch scratch, int64_t now) except -1
    cdef bint take_topic(self, Plain *plain, tuple learnt) except -1
    cdef bint find_queue(self, Plain *plain, Scratch scratch) except -1

    cdef bint _encode_head(self, Message message, Plain *plain, int64_t now) except -1
    cdef bint _encode_body(self, Plain *plain, PyObject *body, Scratch scratch) except -1
    cdef bint _encode_host(self, const char **wire, Py_ssize_t *size, PyObject *host) except -1
    cdef bint _encode_properties(
        self, Plain *plain, PyObject *properties, Scratch scratch
    ) except -1
    cdef bint _take_properties(
        self, Plain *plain, const char *data, Py_ssize_t size, Scratch scratch
    ) except -1
    cdef bint _end_properties(self, Plain *plain, Scratch scratch) except -1
    cdef bint _may_be_put(self, Plain *plain, Scratch scratch) except -1
    cdef bint _find_topic(self, Plain *plain, PyObject *topic) except -1
