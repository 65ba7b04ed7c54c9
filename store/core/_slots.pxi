# Where the fields of objects lie. Part of `_core.pyx` and of `_reads.pyx`.

from cpython.object cimport PyObject

cdef extern from "Python.h":
    PyObject *Py_False
    PyObject *Py_True

cdef extern from "_record.h":
    Py_ssize_t slot_of(object type, const char *name)
    PyObject *in_slot(PyObject *object, Py_ssize_t offset)
    void set_slot(object owner, Py_ssize_t offset, object value)
    bint whole_number(PyObject *object, int64_t least, int64_t most, int64_t *found)


cdef Py_ssize_t _slot(object owner, str name) except 0:
    return _slot_of_class(type(owner), name)


cdef Py_ssize_t _slot_of_class(object owner, str name) except 0:
    cdef Py_ssize_t found = slot_of(owner, name.encode())
    if not found:
        raise TypeError(f"{owner.__name__} keeps {name} in a slot")
    return found
