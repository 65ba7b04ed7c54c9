# Conversion of a record's numbers, and tuples that are filled item by item.

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t

from cqstore.store.core._bytes cimport put16, put32, put64

cdef extern from "_record.h":
    char *put_bytes(char *at, const char *data, size_t size) noexcept nogil
    bint is_ascii(const char *data, size_t size) noexcept nogil
    void in_this_order() noexcept nogil
    bint whole_number(PyObject *object, int64_t low, int64_t high, int64_t *found) noexcept
    object blank_tuple(object type, Py_ssize_t size)


cdef inline void fill(object made, Py_ssize_t at, object item) noexcept:
    """Set an item of a new tuple."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)
