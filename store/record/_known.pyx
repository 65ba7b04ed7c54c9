# cython: language_level=3, boundscheck=False, wraparound=False
"""InternTable: recently used queues and tags, found by the address of their texts.

Each queue or tag has one slot; another one with the same slot replaces it. A slot holds references
to its texts, so an object at the same address is the same text.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

from cqstore.store.core._hashes cimport hash_on
from cqstore.store.core._record cimport blank_tuple, fill


cdef class InternTable:
    """Queues by the address of their topic, tags by the address of their text.

    A lookup creates no object that the garbage collector tracks, so it never starts a collection.
    Queue keys are named tuples of the class ``queue_key``; a caller reserves the keys that it may
    need before the call.
    """

    def __cinit__(self, queue_key, tags_prefix):
        if not issubclass(queue_key, tuple):
            raise TypeError(f"{queue_key!r} is not a tuple class")
        self.queue_key, self.tags_prefix = queue_key, tags_prefix
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
        for at in range(self.blank_count):
            Py_XDECREF(self.blanks[at])
        free(self.queues)
        free(self.blanks)

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Reserve keys for ``count`` queues that are not in the table yet. Other code may run."""
        cdef PyObject **grown
        cdef Py_ssize_t room
        while self.blank_count < count:
            key = blank_tuple(self.queue_key, 2)
            if self.blank_count == self.blank_room:
                room = 2 * self.blank_room + 8
                grown = <PyObject **> realloc(self.blanks, room * sizeof(PyObject *))
                if grown == NULL:
                    raise MemoryError
                self.blanks, self.blank_room = grown, room
            Py_INCREF(key)
            self.blanks[self.blank_count] = <PyObject *> key
            self.blank_count += 1
        return 0

    cdef KnownQueue *queue(self, PyObject *topic, int64_t queue_id) except NULL:
        """Return the slot of a queue, with its key; valid until the next lookup."""
        cdef size_t mixed = (<size_t> topic >> 4) * <size_t> 0x9E3779B97F4A7C15
        cdef KnownQueue *found = &self.queues[((mixed >> 32) + <size_t> queue_id) & (KNOWN_QUEUES - 1)]
        cdef PyObject *before = found.key
        if before != NULL and found.topic == topic and found.queue_id == queue_id:
            return found
        found.key = self._new_key(topic, queue_id)
        found.topic, found.queue_id, found.batch = topic, queue_id, 0
        Py_XDECREF(before)
        return found

    cdef PyObject *_new_key(self, PyObject *topic, int64_t queue_id) except NULL:
        """Turn a reserved key, of which at least one must be left, into the queue's key; hold it.

        The garbage collector need not track it: a text and a number cannot form a cycle.
        """
        cdef PyObject *key
        cdef object number = queue_id
        if not self.blank_count:
            raise AssertionError("no key was reserved")
        self.blank_count -= 1
        key = self.blanks[self.blank_count]
        fill(<object> key, 0, <object> topic)
        fill(<object> key, 1, number)
        return key

    cdef KnownTags *tag(self, PyObject *text) except NULL:
        """Return the slot of tags, with their key and code; valid until the next lookup."""
        cdef KnownTags *found = &self.tags[(<size_t> text >> 4) & (KNOWN_TAGS - 1)]
        cdef PyObject *text_before = found.text
        cdef PyObject *key_before = found.held
        cdef KnownKey taken
        if text_before == text:
            return found
        key = self.tags_prefix + <object> text
        take_key(<PyObject *> key, &taken)
        found.code = <int32_t> hash_on(0, <object> text)
        Py_INCREF(key)
        Py_INCREF(<object> text)
        found.text, found.held, found.key = text, <PyObject *> key, taken
        Py_XDECREF(text_before)
        Py_XDECREF(key_before)
        return found
