# Numbers that a caller gives, which may be anything: what is no number is no exception.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

cdef extern from "_record.h":
    bint whole_number(PyObject *object, int64_t least, int64_t most, int64_t *found)
