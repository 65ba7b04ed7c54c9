# cython: language_level=3, boundscheck=False, wraparound=False
"""PropertyNames and ``java_hash``: the properties of a record that dispatch needs.

No size in the input is trusted: every read is bounded by the object that it reads. Anything that is
not plain is declined, and the slow path in Python decides what is valid.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t
from libc.string cimport memchr, memcmp

from cqstore.store.core._hashes cimport hash_on

_new = tuple.__new__


def java_hash(text not None):
    """See ``cqstore.store.record.java_hash``."""
    if not isinstance(text, str):
        raise TypeError(f"expected str, found {type(text).__name__}")
    return <int32_t> hash_on(0, text)


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
                    values[at] = decode_text(name_end + 1, value_end)
            segment = value_end + 1
        return self._tuple(values)
