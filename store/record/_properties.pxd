# Properties in stored form, for compiled code that reads and writes them.

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    NAME_END = 1
    VALUE_END = 2
    MAX_NAMES = 16


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


cdef inline object decode_text(const char *start, const char *end):
    """Return the text between two pointers; invalid UTF-8 is replaced."""
    return PyUnicode_DecodeUTF8(start, end - start, "replace")
