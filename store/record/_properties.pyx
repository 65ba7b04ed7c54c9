# cython: language_level=3, boundscheck=False, wraparound=False
"""Reading of properties in stored form, all of them or those that dispatch needs; ``java_hash``.

No size in the input is trusted: every read is bounded by the object that it reads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp

from cqstore.store.core._hashes cimport hash_on

import codecs

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(list owner, Py_ssize_t at) nogil
    bint PyUnicode_IS_ASCII(object text) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(object text) nogil
    void *PyUnicode_DATA(object text) nogil

cdef enum:
    MAX_KNOWN = 128  # a power of two
    LONGEST_KNOWN = 32

_new = tuple.__new__


def java_hash(text not None):
    """See ``cqstore.store.record.java_hash``."""
    if not isinstance(text, str):
        raise TypeError(f"expected str, found {type(text).__name__}")
    return <int32_t> hash_on(0, text)


def _replace_as_java(exc):
    """Replace invalid UTF-8; the bytes of a surrogate give one character together."""
    cdef bytes bad = exc.object[exc.start:exc.start + 3]
    if bad[:1] == b"\xed" and b"\xa0" <= bad[1:2] <= b"\xbf":
        return "\ufffd", exc.start + (3 if b"\x80" <= bad[2:3] <= b"\xbf" else 2)
    return "\ufffd", exc.end


codecs.register_error("cqstore-java", _replace_as_java)


def text_of(bytes data not None):
    """See ``cqstore.store.record.properties``."""
    return decode_text(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def decode_properties(bytes data not None):
    """See ``cqstore.store.record.properties``."""
    return read_properties(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef dict read_properties(const char *data, Py_ssize_t size):
    """Return the properties in ``data``; texts that messages repeat are shared."""
    cdef Property found
    cdef dict properties = {}
    found.after = data
    while next_property(&found, data + size):
        name = _text(found.name, found.name_size, _known_names)
        if is_named(&found, b"TAGS", 4):
            properties[name] = _text(found.value, found.value_size, _known_tags)
        else:
            properties[name] = decode_text(found.value, found.value_size)
    return properties


cdef list _known_names = [None] * MAX_KNOWN  # few, and nearly every message has them
cdef list _known_tags = [None] * MAX_KNOWN


cdef object _text(const char *data, Py_ssize_t size, list known):
    """Return the text of ``size`` bytes (at least 1); the known object, if it is in ``known``."""
    cdef Py_ssize_t at
    cdef PyObject *before
    if size > LONGEST_KNOWN:
        return decode_text(data, size)
    at = (size * 31 + <uint8_t> data[0] * 5 + <uint8_t> data[size - 1] * 3) & (MAX_KNOWN - 1)
    before = PyList_GET_ITEM(known, at)
    if (
        before != <PyObject *> None and PyUnicode_GET_LENGTH(<object> before) == size
        and memcmp(PyUnicode_DATA(<object> before), data, size) == 0
    ):
        return <object> before
    text = decode_text(data, size)
    if PyUnicode_IS_ASCII(text):  # otherwise a character may have several bytes
        known[at] = text
    return text


cdef class PropertyNames:
    """The names of the properties that dispatch needs, and the tuple type for their values.

    The first field of the tuple type ``made`` is the hash of the first value, the last one whether
    all other values are missing; the values are between them, ``None`` for a missing one.
    """

    cdef object made
    cdef list held  # the bytes that the pointers lead to
    cdef const char *names[MAX_NAMES]
    cdef Py_ssize_t sizes[MAX_NAMES]
    cdef Py_ssize_t count

    def __init__(self, names, made):
        cdef list held = [name.encode() for name in names]
        cdef Py_ssize_t at
        if len(held) > MAX_NAMES:
            raise ValueError("too many names")
        for at in range(len(held)):
            name = <bytes?> held[at]
            self.names[at] = PyBytes_AS_STRING(name)
            self.sizes[at] = PyBytes_GET_SIZE(name)
        self.held, self.made, self.count = held, made, len(held)

    cdef object _tuple(self, list values):
        first = values[0]
        cdef bint alone = True
        cdef Py_ssize_t at
        cdef int32_t code = 0
        for at in range(1, self.count):
            if values[at] is not None:
                alone = False
                break
        if first is not None:
            code = <int32_t> hash_on(0, first)
        return _new(self.made, (code, *values, alone))

    def decode(self, bytes data not None):
        """Return the values of these properties in ``data``, a record's properties."""
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef Property found
        cdef Py_ssize_t at
        cdef list values = [None] * self.count
        found.after = start
        while next_property(&found, start + PyBytes_GET_SIZE(data)):
            for at in range(self.count):
                if is_named(&found, self.names[at], self.sizes[at]):
                    values[at] = decode_text(found.value, found.value_size)
        return self._tuple(values)
