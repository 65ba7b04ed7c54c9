# What was met of late, at hand without a question to a dict: queues and tags. Part of `_core.pyx`.
#
# Each has one place, which the next one that comes there takes over. A place holds its texts, so an
# object at the same address is the same text.

from cpython.ref cimport Py_INCREF, Py_XDECREF

cdef enum:
    KNOWN_QUEUES = 1 << 15  # powers of two
    KNOWN_TAGS = 1 << 6


cdef struct KnownQueue:
    PyObject *key  # topic and queue id, held; NULL: there is none
    PyObject *topic  # the text in it
    int64_t queue_id
    int64_t batch  # in which it has this number, see ``_Columns.batch``
    int number


cdef struct KnownTags:
    PyObject *text  # held, as is the key; NULL: there is none
    PyObject *held  # the key under which the index has it
    KnownKey key
    int32_t code


cdef class _InternTable:
    """Queues by the address of their topic's text, tags by that of theirs."""

    cdef KnownQueue *queues
    cdef KnownTags tags[KNOWN_TAGS]
    cdef object tags_prefix

    def __cinit__(self, tags_prefix):
        self.tags_prefix = tags_prefix
        self.queues = <KnownQueue *> calloc(KNOWN_QUEUES, sizeof(KnownQueue))
        if self.queues == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(KNOWN_QUEUES if self.queues != NULL else 0):
            Py_XDECREF(self.queues[at].key)
        for at in range(KNOWN_TAGS):
            Py_XDECREF(self.tags[at].text)
            Py_XDECREF(self.tags[at].held)
        free(self.queues)

    cdef KnownQueue *queue(self, PyObject *topic, int64_t queue_id) except NULL:
        """Return the place of a queue, with its key; it stays until the next question."""
        cdef size_t mixed = (<size_t> topic >> 4) * <size_t> 0x9E3779B97F4A7C15
        cdef KnownQueue *found = &self.queues[((mixed >> 32) + <size_t> queue_id) & (KNOWN_QUEUES - 1)]
        cdef PyObject *before = found.key
        if before != NULL and found.topic == topic and found.queue_id == queue_id:
            return found
        key = (<object> topic, queue_id)
        Py_INCREF(key)
        found.key, found.topic, found.queue_id, found.batch = <PyObject *> key, topic, queue_id, 0
        Py_XDECREF(before)
        return found

    cdef KnownTags *tag(self, PyObject *text) except NULL:
        """Return the place of tags, with their key and code; it stays until the next question."""
        cdef KnownTags *found = &self.tags[(<size_t> text >> 4) & (KNOWN_TAGS - 1)]
        cdef PyObject *text_before = found.text
        cdef PyObject *key_before = found.held
        cdef KnownKey taken
        if text_before == text:
            return found
        key = self.tags_prefix + <object> text
        take_key(<PyObject *> key, &taken)
        found.code = _hash(<object> text)
        Py_INCREF(key)
        Py_INCREF(<object> text)
        found.text, found.held, found.key = text, <PyObject *> key, taken
        Py_XDECREF(text_before)
        Py_XDECREF(key_before)
        return found
