# Bytes of keys and values, for compiled code. See `keys.py` for their meaning.

from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    enum {
        UNIT_BYTES = 28, PLACE_BYTES = 8, ENTRY_BYTES = 16, KEY_HEAD_BYTES = 5,
        QUEUE_TAIL_BYTES = 6, MAX_PREFIX = 512, CTRL = 1, MAX_MORE = 3
    };
    #define MAX_MIDDLE "\\x01max\\x01"

    static inline int64_t load_be64(const void *from) {
        const unsigned char *byte = from;
        uint64_t value = 0;
        for (int at = 0; at < 8; at++) value = value << 8 | byte[at];
        return (int64_t)value;
    }

    static inline void store_be64(void *to, int64_t number) {
        unsigned char *byte = to;
        uint64_t value = (uint64_t)number;
        for (int at = 7; at >= 0; at--, value >>= 8) byte[at] = (unsigned char)value;
    }

    static inline void store_be32(void *to, int32_t number) {
        unsigned char *byte = to;
        uint32_t value = (uint32_t)number;
        for (int at = 3; at >= 0; at--, value >>= 8) byte[at] = (unsigned char)value;
    }

    static inline void store_le32(void *to, uint32_t value) {
        unsigned char *byte = to;
        for (int at = 0; at < 4; at++, value >>= 8) byte[at] = (unsigned char)value;
    }
    """
    const int UNIT_BYTES
    const int PLACE_BYTES  # a queue offset, at the end of a unit's key
    const int ENTRY_BYTES  # value of a `max` entry
    const int KEY_HEAD_BYTES  # of a key, before the topic
    const int QUEUE_TAIL_BYTES  # of a unit's key, between topic and queue offset
    const int MAX_PREFIX
    const int CTRL
    const int MAX_MORE  # additional bytes of a `max` entry's key, compared with its queue's prefix
    const char *MAX_MIDDLE  # of the key of a `max` entry, after the topic
    int64_t load_be64(const void *) noexcept nogil
    void store_be64(void *, int64_t) noexcept nogil
    void store_be32(void *, int32_t) noexcept nogil
    void store_le32(void *, uint32_t) noexcept nogil


cdef inline bint is_below(
    const char *key, size_t length, const char *end, size_t end_length
) noexcept nogil:
    """Return whether ``key`` sorts before ``end``."""
    cdef int order = memcmp(key, end, length if length < end_length else end_length)
    return order < 0 or (order == 0 and length < end_length)


cdef inline Py_ssize_t begin_key(char *key, bytes prefix) except -1:
    """Put a queue's prefix into ``key``, with room for an offset after it; return its length."""
    cdef Py_ssize_t length = len(prefix)
    if length > MAX_PREFIX:
        raise ValueError("the prefix is too long")
    memcpy(key, <const char *>prefix, length)
    return length
