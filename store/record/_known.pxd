# Recently used queues and tags, for lookups by compiled code; and the UTF-8 of keys.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from cqstore.store.core._hashes cimport hash_utf8

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    KNOWN_QUEUES = 1 << 15  # powers of two
    KNOWN_TAGS = 1 << 6


cdef struct Value:
    # The UTF-8 of a property or of a key; NULL without a text.
    const char *text
    Py_ssize_t size


cdef struct KnownKey:
    # A repeated key: its hash is `power` times the hash of what precedes it, plus `hashed`.
    Value value
    uint32_t power, hashed


cdef struct KnownQueue:
    PyObject *key  # topic and queue id, reference held; NULL: empty slot
    PyObject *topic  # the topic in the key
    int64_t queue_id
    int64_t batch  # the batch in which the queue has this number, see ``BatchColumns.batch``
    int number


cdef struct KnownTags:
    PyObject *text  # reference held, as for the key; NULL: empty slot
    PyObject *held  # the key that the index uses for these tags
    KnownKey key
    int32_t code


cdef inline int take_value(PyObject *text, Value *found) except -1:
    """Find the UTF-8 bytes of a text without surrogates; NULL: there is no text."""
    found.text, found.size = NULL, 0
    if text != NULL:
        found.text = PyUnicode_AsUTF8AndSize(<object> text, &found.size)
    return 0


cdef inline int take_key(PyObject *text, KnownKey *found) except -1:
    """Find the UTF-8 bytes of a text without surrogates, and its hash after any prefix."""
    take_value(text, &found.value)
    found.hashed = hash_utf8(0, found.value.text, found.value.size)
    found.power = hash_utf8(1, found.value.text, found.value.size) - found.hashed
    return 0


cdef class InternTable:
    cdef KnownQueue *queues
    cdef KnownTags tags[KNOWN_TAGS]
    cdef object queue_key, tags_prefix
    cdef PyObject **blanks  # references held: unused keys for queues that are not in the table yet
    cdef Py_ssize_t blank_count, blank_room

    cdef int reserve(self, Py_ssize_t count) except -1
    cdef KnownQueue *queue(self, PyObject *topic, int64_t queue_id) except NULL
    cdef KnownTags *tag(self, PyObject *text) except NULL
    cdef PyObject *_new_key(self, PyObject *topic, int64_t queue_id) except NULL
