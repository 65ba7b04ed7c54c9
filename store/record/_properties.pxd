# Properties in stored form, for compiled code that reads and writes them.

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    NAME_END = 1
    VALUE_END = 2
    MAX_NAMES = 16


cdef struct Property:
    # One property in stored form; neither its name nor its value is empty.
    const char *name
    const char *value
    const char *after  # where the next one starts; after the end: this one is not terminated
    Py_ssize_t name_size, value_size


cdef inline bint next_property(Property *found, const char *end) noexcept nogil:
    """Find the next property from ``found.after`` on; return whether there is one.

    As RocketMQ's parser, it skips segments without a separator, or with an empty name or value.
    """
    cdef const char *value_end
    cdef const char *name_end
    while found.after < end:
        found.name = found.after
        value_end = <const char *> memchr(found.name, VALUE_END, end - found.name)
        if value_end == NULL:
            value_end = end
        found.after = value_end + 1
        name_end = <const char *> memchr(found.name, NAME_END, value_end - found.name)
        if name_end != NULL and name_end != found.name and name_end + 1 < value_end:
            found.value, found.name_size = name_end + 1, name_end - found.name
            found.value_size = value_end - found.value
            return True
    return False


cdef inline bint is_named(const Property *found, const char *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property has the name of ``size`` bytes."""
    return found.name_size == size and memcmp(found.name, name, size) == 0


cdef inline bint is_ordinary(object part, const char **text, Py_ssize_t *size) except -1:
    """Return whether a property can hold ``part``, and find the UTF-8 bytes of its text."""
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


cdef inline object decode_text(const char *data, Py_ssize_t size):
    """Return the text of ``size`` bytes; invalid UTF-8 is replaced as in Java."""
    return PyUnicode_DecodeUTF8(data, size, "cqstore-java")


cdef dict read_properties(const char *data, Py_ssize_t size)
