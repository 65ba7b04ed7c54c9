# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled core. Whatever is not plain it hands back: the long way, in Python, says what is right.

Nothing here trusts a size that it was given: every read is bounded by the object it reads.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memchr, memcmp, memcpy

from store.core._crc32 cimport crc_of, crc_of_by_table, crc_on, crc_prepare
from store.core._hashes cimport hash_on, hash_utf8
from store.core._layout cimport *
from store.core._record cimport whole_number
from store.log._tail cimport FilePositions, LogTail
from store.service.dispatching._waiting cimport InFlight, Waiting
from store.service.runtime._flags cimport EnteredFlag, StateFlags

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    NAME_END = 1
    VALUE_END = 2
    MAX_NAMES = 16

_new = tuple.__new__

crc_prepare()


def java_hash(text not None):
    """See ``store.record.java_hash``."""
    if not isinstance(text, str):
        raise TypeError(f"a text is hashed, not {type(text).__name__}")
    return _hash(text)


def crc32(bytes data not None, *, bint folded=True):
    """Return the CRC-32 of ``data`` as a put reckons it; not ``folded``: by tables alone."""
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    return crc_of(start, size) if folded else crc_of_by_table(start, size)


cdef int32_t _hash(object part):
    return <int32_t> hash_on(0, part)


cdef class PropertyNames:
    """The names of the properties that dispatch needs, and the tuple that holds their values.

    Of the tuple ``made`` the first field is the hash of the first value, the last one whether there
    is no value but the first; between them stand the values, ``None`` where there is none.
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

    cdef Py_ssize_t _find(self, const char *name, Py_ssize_t size) noexcept:
        cdef Py_ssize_t at
        for at in range(self.count):
            if self.sizes[at] == size and memcmp(self.names[at], name, size) == 0:
                return at
        return -1

    cdef object _tuple(self, list values):
        first = values[0]
        cdef bint alone = True
        cdef Py_ssize_t at
        for at in range(1, self.count):
            if values[at] is not None:
                alone = False
                break
        code = _hash(first) if first is not None else 0
        return _new(self.made, (code, *values, alone))

    def decode(self, bytes data not None):
        """Return the values in the properties ``data`` of a record."""
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef const char *end = start + PyBytes_GET_SIZE(data)
        cdef const char *segment = start
        cdef const char *value_end
        cdef const char *name_end
        cdef Py_ssize_t at
        cdef list values = [None] * self.count
        while segment < end:
            value_end = <const char *> memchr(segment, VALUE_END, end - segment)
            if value_end == NULL:
                value_end = end
            name_end = <const char *> memchr(segment, NAME_END, value_end - segment)
            if name_end != NULL and name_end + 1 < value_end:
                at = self._find(segment, name_end - segment)
                if at >= 0:
                    values[at] = PyUnicode_DecodeUTF8(
                        name_end + 1, value_end - name_end - 1, "replace"
                    )
            segment = value_end + 1
        return self._tuple(values)

    def encode(self, dict properties not None):
        """Return the stored form of ``properties`` and their values; ``None``: not plain."""
        cdef Py_ssize_t size = 0, length = 0, at
        cdef const char *text = NULL
        cdef list values = [None] * self.count
        for name, value in properties.items():
            if not _plain(name, &text, &length):
                return None
            size += length + 1
            at = self._find(text, length)
            if not _plain(value, &text, &length):
                return None
            size += length + 1
            if at >= 0:
                values[at] = value
        encoded = PyBytes_FromStringAndSize(NULL, size)
        cdef char *out = PyBytes_AS_STRING(encoded)
        cdef Py_ssize_t done = 0
        for name, value in properties.items():
            done = _append(out, done, size, name, NAME_END)
            done = _append(out, done, size, value, VALUE_END)
        return (encoded, self._tuple(values)) if done == size else None


cdef bint _plain(object part, const char **text, Py_ssize_t *size) except -1:
    """Return whether ``part`` is text that a property can hold; where its UTF-8 lies."""
    if type(part) is not str:
        return False
    try:
        text[0] = PyUnicode_AsUTF8AndSize(part, size)
    except UnicodeEncodeError:
        return False
    return (
        size[0] > 0
        and memchr(text[0], NAME_END, size[0]) == NULL
        and memchr(text[0], VALUE_END, size[0]) == NULL
    )


cdef Py_ssize_t _append(
    char *out, Py_ssize_t done, Py_ssize_t size, object part, char end
) except -1:
    """Write ``part`` and ``end`` at ``done``; return where they end, past ``size`` if they would."""
    cdef Py_ssize_t length = 0
    cdef const char *text = PyUnicode_AsUTF8AndSize(part, &length)
    if done > size or length + 1 > size - done:
        return size + 1
    memcpy(out + done, text, length)
    out[done + length] = end
    return done + length + 1


include "_columns.pxi"
include "_known.pxi"
include "_message.pxi"
include "_puts.pxi"
include "_encoded.pxi"
include "_scan.pxi"
include "_noting.pxi"
include "_pages.pxi"
