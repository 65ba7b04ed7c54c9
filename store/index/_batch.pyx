# cython: language_level=3, boundscheck=False, wraparound=False
"""KeyColumns: keys that are being added to the index, as rows of numbers filled by compiled code.

The Python methods of a batch are in ``cqstore.store.index.index_batch``. Under the GIL a key is
added completely or not at all, whatever interrupts the caller that adds it. No row holds a Python
object.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from cqstore.store.core._column cimport Block, Column, room_in
from cqstore.store.core._hashes cimport HASH_SIGN, hash_utf8, without_sign

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) noexcept
    void PyErr_Clear()


cdef object take_text(object text, const char **start, Py_ssize_t *size):
    """Find the UTF-8 of a text, including surrogates; return the object that holds the bytes."""
    cdef bytes encoded
    if type(text) is not str:
        raise TypeError("topics and keys must be str")
    start[0] = PyUnicode_AsUTF8AndSize(text, size)
    if start[0] != NULL:
        return text
    PyErr_Clear()
    encoded = (<str> text).encode("utf-8", "surrogatepass")
    start[0], size[0] = encoded, len(encoded)
    return encoded


cdef object take_topic(object topic, Topic *found):
    """Compute the prefix of the names of a topic's keys; return the object that holds the text."""
    held = take_text(topic, &found.text, &found.size)
    if found.size > INT32_MAX:
        raise OverflowError("topic too long")
    found.hashed = hash_utf8(0, found.text, found.size) * 31 + HASH_SIGN
    return held


cdef inline void note_hash(uint64_t *hashes, int32_t hashed) noexcept:
    hashes[(hashed >> 6) & (HASH_WORDS - 1)] |= <uint64_t> 1 << (hashed & 63)


cdef inline bint may_have(const uint64_t *hashes, int32_t hashed) noexcept:
    """Return whether a row may have that hash: most queries need not search the rows."""
    return hashes[(hashed >> 6) & (HASH_WORDS - 1)] >> (hashed & 63) & 1


cdef class KeyColumns:
    """Keys as rows of ``entries``, see ``IndexBatch``.

    The name of a row (topic, ``#`` and key in UTF-8) is stored in ``names``, from the end of the
    previous name to the row's ``name_end``. ``key_hash`` is the hash of that text as stored in the
    index.
    """

    def __cinit__(self):
        self.entries, self.names = Column(sizeof(KeyRow)), Column(1)

    def __len__(self):
        return self.entries.used

    cdef const KeyRow *row(self, Py_ssize_t row) except NULL:
        if not 0 <= row < self.entries.used:
            raise IndexError("row out of range")
        return <const KeyRow *> self.entries.block.data + row

    cdef int64_t _name_start(self, Py_ssize_t row) noexcept:
        return (<const KeyRow *> self.entries.block.data)[row - 1].name_end if row > 0 else 0

    # ---- adding (one thread)

    cdef int add_key(
        self, const Topic *topic, const char *key, Py_ssize_t size, int64_t phy_offset,
        int64_t store_timestamp,
    ) except -1:
        """Append one key."""
        return self.add_hashed(
            topic, key, size, hash_utf8(topic.hashed, key, size), phy_offset, store_timestamp
        )

    cdef int add_hashed(
        self, const Topic *topic, const char *key, Py_ssize_t size, uint32_t hashed,
        int64_t phy_offset, int64_t store_timestamp,
    ) except -1:
        """Append one key; ``hashed`` is its hash continued from the topic's prefix."""
        cdef Py_ssize_t whole = topic.size + 1 + size
        cdef KeyRow *row = <KeyRow *> room_in(self.entries, 1)
        cdef char *name = room_in(self.names, whole)
        memcpy(name, topic.text, topic.size)
        name[topic.size] = HASH_SIGN
        memcpy(name + topic.size + 1, key, size)
        row.phy_offset, row.store_timestamp = phy_offset, store_timestamp
        row.name_end = self.names.used + whole
        row.key_hash = <int32_t> without_sign(hashed)
        row.topic_size = <int32_t> topic.size
        note_hash(self.hashes, row.key_hash)
        self.names.used += whole
        self.entries.used += 1  # the row is visible from here on
        return 0

    cdef int add_words(
        self, const Topic *topic, const char *words, Py_ssize_t size, int64_t phy_offset,
        int64_t store_timestamp,
    ) except -1:
        """Append each word of a text separated by spaces."""
        cdef const char *end = words + size
        cdef const char *word_end
        while words < end:
            word_end = <const char *> memchr(words, c" ", end - words)
            if word_end == NULL:
                word_end = end
            if word_end > words:
                self.add_key(topic, words, word_end - words, phy_offset, store_timestamp)
            words = word_end + 1
        return 0

    def add(self, topic, key, int64_t phy_offset, int64_t store_timestamp):
        """Append one key."""
        cdef Topic found
        cdef const char *text
        cdef Py_ssize_t size
        topic_held = take_topic(topic, &found)
        key_held = take_text(key, &text, &size)
        self.add_key(&found, text, size, phy_offset, store_timestamp)

    def extend(self, KeyColumns other not None, Py_ssize_t start, Py_ssize_t end):
        """Append rows ``start:end`` of ``other``: all or none."""
        cdef Py_ssize_t count, at
        cdef int64_t first, size, moved
        cdef KeyRow *rows
        cdef char *names
        if not 0 <= start <= end <= other.entries.used:
            raise IndexError("rows out of range")
        count = end - start
        if not count:
            return
        first = other._name_start(start)
        size, moved = other._name_start(end) - first, self.names.used - first
        rows, names = <KeyRow *> self.entries.room(count), self.names.room(size)
        memcpy(names, other.names.block.data + first, size)
        memcpy(rows, other.entries.block.data + start * sizeof(KeyRow), count * sizeof(KeyRow))
        for at in range(count):
            rows[at].name_end += moved
            note_hash(self.hashes, rows[at].key_hash)
        self.names.used += size
        self.entries.used += count

    # ---- asking (any thread)

    def phy_offset(self, Py_ssize_t row):
        """Return the phy offset of a row's record."""
        return self.row(row).phy_offset

    def store_timestamp(self, Py_ssize_t row):
        """Return the store time of a row's record, ms."""
        return self.row(row).store_timestamp

    def name(self, Py_ssize_t row):
        """Return topic and key of a row."""
        cdef const KeyRow *found = self.row(row)
        cdef Py_ssize_t start = self._name_start(row), end = found.name_end
        cdef Py_ssize_t topic_end = start + found.topic_size
        cdef Block names = self.names.block  # kept alive: a surrogate may run other threads
        topic = PyUnicode_DecodeUTF8(names.data + start, topic_end - start, "surrogatepass")
        start = topic_end + 1
        return topic, PyUnicode_DecodeUTF8(names.data + start, end - start, "surrogatepass")

    def find(self, topic, key):
        """Return the rows of one key, newest first."""
        return self.found(topic, key)

    cdef list found(self, topic, key):
        cdef list rows = []
        cdef Topic wanted
        cdef const char *text
        cdef const char *name
        cdef Py_ssize_t size, row
        cdef int32_t hashed
        cdef const KeyRow *entries
        topic_held = take_topic(topic, &wanted)
        key_held = take_text(key, &text, &size)
        entries = <const KeyRow *> self.entries.block.data  # no other thread runs from here on
        hashed = <int32_t> without_sign(hash_utf8(wanted.hashed, text, size))
        if not may_have(self.hashes, hashed):
            return rows
        for row in range(self.entries.used - 1, -1, -1):
            if entries[row].key_hash != hashed or entries[row].topic_size != wanted.size:
                continue
            if entries[row].name_end - self._name_start(row) != wanted.size + 1 + size:
                continue
            name = self.names.block.data + self._name_start(row)
            if memcmp(name, wanted.text, wanted.size) == 0 and (
                memcmp(name + wanted.size + 1, text, size) == 0
            ):
                rows.append(row)
        return rows
