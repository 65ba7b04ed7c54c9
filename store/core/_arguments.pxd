# What a read is called with, and may be anything. Numbers that a field takes: `_fields.pxd`.

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef inline bint is_small(number):
    """Return whether it is a plain number of at least 0 that a C number holds with room."""
    cdef int overflow = 0
    cdef long long value
    if type(number) is not int:
        return False
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and 0 <= value <= <long long> 1 << 62
