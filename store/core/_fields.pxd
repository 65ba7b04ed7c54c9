# Values that fields of compiled classes accept from Python: exactly a number or a flag. A refused
# value leaves the field unchanged.

from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport int64_t

from cqstore.store.core._arguments cimport PyLong_AsLongLongAndOverflow


cdef inline int64_t natural(object given, str name) except -1:
    """Return a whole number of at least 0 that 64 bits hold."""
    cdef int overflow = 0
    cdef int64_t found = number_of(given, name, &overflow)
    if overflow or found < 0:
        raise OverflowError(f"{name} is at least 0 and below 2**63, not {given}")
    return found


cdef inline int64_t whole(object given, str name) except? -1:
    """Return a whole number that 64 bits hold."""
    cdef int overflow = 0
    cdef int64_t found = number_of(given, name, &overflow)
    if overflow:
        raise OverflowError(f"{name} is at least -2**63 and below 2**63, not {given}")
    return found


cdef inline int64_t number_of(object given, str name, int *overflow) except? -1:
    if type(given) is not int:
        if not PyIndex_Check(given) or type(given) is bool:
            raise TypeError(f"{name} is a whole number, not {type(given).__name__}")
        given = PyNumber_Index(given)
    return PyLong_AsLongLongAndOverflow(given, overflow)


cdef inline bint truth(object given, str name) except -1:
    if type(given) is not bool:
        raise TypeError(f"{name} is True or False, not {given!r:.60}")
    return given is True
