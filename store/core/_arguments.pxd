# Arguments of a read, which may be any object. Numbers for fields: `_fields.pxd`.

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef inline bint is_small(number):
    """Return whether ``number`` is a plain int of at least 0, well within the limits of C."""
    cdef int overflow = 0
    cdef long long value
    if type(number) is not int:
        return False
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and 0 <= value <= <long long> 1 << 62
