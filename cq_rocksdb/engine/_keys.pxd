# Bytes of keys and values, for compiled code. See `keys.py` for their meaning.

from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    enum {
        UNIT_BYTES = 28, PLACE_BYTES = 8, ENTRY_BYTES = 16, KEY_HEAD_BYTES = 5,
        QUEUE_TAIL_BYTES = 6, MAX_PREFIX = 512, CTRL = 1, MAX_MORE = 3
    };
    #define MAX_MIDDLE "\\x01max\\x01"
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
