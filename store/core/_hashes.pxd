# Java's hash of texts, and that of the keys of the index.

from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint32_t

cdef enum:
    HASH_SIGN = 35  # `#`


cdef inline uint32_t hash_on(uint32_t value, object part):
    """Return the hash of a text that goes on with ``part`` behind what has the hash ``value``."""
    cdef str text = <str> part
    cdef Py_UCS4 letter
    cdef uint32_t unit
    for letter in text:
        unit = <uint32_t> letter
        if unit > 0xFFFF:
            unit -= 0x10000
            value = value * 31 + 0xD800 + (unit >> 10)
            unit = 0xDC00 + (unit & 0x3FF)
        value = value * 31 + unit
    return value


cdef inline int64_t without_sign(uint32_t hashed) noexcept:
    cdef int64_t value = <int32_t> hashed
    return 0 if value == INT32_MIN else -value if value < 0 else value
