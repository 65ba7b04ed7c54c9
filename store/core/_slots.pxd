# Where the fields of objects lie. Whoever names a field here is of the package that has the class,
# or of one above it: `tests/meta/test_compiled_layers.py`.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    PyObject *Py_False
    PyObject *Py_True

cdef extern from "_record.h":
    Py_ssize_t slot_of(object type, const char *name)
    PyObject *in_slot(PyObject *object, Py_ssize_t offset)
    void set_slot(object owner, Py_ssize_t offset, object value)
    bint whole_number(PyObject *object, int64_t least, int64_t most, int64_t *found)


cdef inline Py_ssize_t its_slot(object owner, str name) except 0:
    return slot_of_class(type(owner), name)


cdef inline Py_ssize_t slot_of_class(object owner, str name) except 0:
    cdef Py_ssize_t found = slot_of(owner, name.encode())
    if not found:
        raise TypeError(f"{owner.__name__} keeps {name} in a slot")
    return found
