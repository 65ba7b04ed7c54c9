# Keys that are being added to the index, for compiled code that adds and searches them.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from cqstore.store.core._column cimport Column


cdef enum:
    HASH_WORDS = 256  # a power of two


cdef struct KeyRow:
    # One key in its row form; see `KeyColumns`.
    int64_t phy_offset, store_timestamp
    int64_t name_end
    int32_t key_hash, topic_size


cdef struct Topic:
    # The prefix of a topic's keys; the holder of this struct keeps the text alive.
    const char *text
    Py_ssize_t size
    uint32_t hashed  # including the `#` after it


cdef object take_topic(object topic, Topic *found)


cdef class KeyColumns:
    cdef readonly Column entries, names
    cdef uint64_t hashes[HASH_WORDS]  # a bit per row's hash; most queries find theirs unset

    cdef int add_key(
        self, const Topic *topic, const char *key, Py_ssize_t size, int64_t phy_offset,
        int64_t store_timestamp,
    ) except -1
    cdef int add_hashed(
        self, const Topic *topic, const char *key, Py_ssize_t size, uint32_t hashed,
        int64_t phy_offset, int64_t store_timestamp,
    ) except -1
    cdef int add_words(
        self, const Topic *topic, const char *words, Py_ssize_t size, int64_t phy_offset,
        int64_t store_timestamp,
    ) except -1
    cdef list found(self, object topic, object key)
    cdef const KeyRow *row(self, Py_ssize_t row) except NULL
    cdef int64_t _name_start(self, Py_ssize_t row) noexcept
