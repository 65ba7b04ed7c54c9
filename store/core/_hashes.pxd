# Java's hash of texts, and the hash of index keys.

from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint32_t

cdef enum:
    HASH_SIGN = 35  # `#`

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* The hash of a UTF-8 text, also with surrogates, that continues a text with the hash `value`.
       Four ASCII characters are one step, because each product waits for the previous one. */
    static inline uint32_t hash_utf8(uint32_t value, const char *text, size_t size) {
        const unsigned char *at = (const unsigned char *)text, *end = at + size;
        uint32_t four, unit;
        while (at < end) {
            for (; end - at >= 4; at += 4) {
                memcpy(&four, at, 4);
                if (four & 0x80808080u) break;
                value = value * (31u * 31 * 31 * 31) + at[0] * (31u * 31 * 31)
                    + at[1] * (31u * 31) + at[2] * 31u + at[3];
            }
            if (at == end) break;
            unit = *at++;
            if (unit >= 0x80) {
                int more = unit >= 0xF0 ? 3 : unit >= 0xE0 ? 2 : 1;
                for (unit &= 0x3Fu >> more; more > 0 && at < end; more--)
                    unit = unit << 6 | (*at++ & 0x3Fu);
                if (unit > 0xFFFF) {
                    unit -= 0x10000;
                    value = value * 31 + 0xD800 + (unit >> 10);
                    unit = 0xDC00 + (unit & 0x3FF);
                }
            }
            value = value * 31 + unit;
        }
        return value;
    }
    """
    uint32_t hash_utf8(uint32_t value, const char *text, size_t size) noexcept nogil


cdef inline uint32_t hash_on(uint32_t value, object part):
    """Return the hash of a text that continues with ``part`` after a text with hash ``value``."""
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
