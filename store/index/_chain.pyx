# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False
"""The chain of a hash in an index file, and the fields of the files that a query by key needs.

``IndexFile`` and ``IndexService`` inherit the fields: C fields in compiled code, attributes in
Python. A value that a field cannot hold is refused, and the error names the field. Nothing from
disk is trusted: every read is bounded by the file, and a damaged chain is left to the slow path in
Python.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._fields cimport truth, whole
from cqstore.store.core._layout cimport (
    AT_INDEX_COUNT, AT_PHY_OF_ENTRY, AT_PREVIOUS_OF_ENTRY, AT_SYS_FLAG, AT_TIME_OF_ENTRY,
    INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, PASSED_OVER,
)
from cqstore.store.core._maps cimport FileMap
from cqstore.store.index._batch cimport KeyColumns
from cqstore.store.record._properties cimport Property, is_named, next_property
from cqstore.store.record._stored cimport StoredMessage

cdef enum:
    SIGNAL_STEP = 1 << 16  # entries between two checks for signals: a chain may have millions
    MAX_IN_FILE = 0x7FFFFFFF  # limit of slots and entries: their numbers have four bytes

cdef int64_t MAX_TIME = <int64_t> 1 << 62

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


cdef class ChainFile:
    """One index file: its time range, numbers of slots and entries, map, and pending keys."""

    @property
    def read_only(self):
        """Whether another process writes the file."""
        return self.is_read_only

    @read_only.setter
    def read_only(self, given):
        self.is_read_only = truth(given, "read_only")

    @property
    def begin_timestamp(self):
        """Store time in ms to which the times of the entries are relative, as in the header."""
        return self.begin

    @begin_timestamp.setter
    def begin_timestamp(self, given):
        self.begin = whole(given, "begin_timestamp")

    @property
    def end_timestamp(self):
        """Store time of the last entry's record in ms, as in the header."""
        return self.end

    @end_timestamp.setter
    def end_timestamp(self, given):
        self.end = whole(given, "end_timestamp")

    @property
    def geometry(self):
        """Numbers of slots and entries of the file."""
        return self.shape

    @geometry.setter
    def geometry(self, given):
        slots, entries = given
        cdef int64_t slot_count = whole(slots, "slots"), entry_count = whole(entries, "entries")
        self.shape, self.slots, self.entries = given, slot_count, entry_count

    @property
    def waiting(self):
        """The pending keys, and the number of the entry that the first of them will become.

        Both are set and read in one step, so that readers see a consistent pair.
        """
        return self.pending, self.drained

    @waiting.setter
    def waiting(self, given):
        pending, first = given
        cdef KeyColumns keys = pending
        cdef int64_t drained = whole(first, "waiting")
        self.pending, self.drained = keys, drained

    def walk(
        self, list found not None, int64_t wanted, int64_t max_num, int64_t begin, int64_t end,
        int64_t drained, bint is_checked,
    ):
        """Add the phy offsets in the chain of a hash to ``found``, newest first.

        False: the chain may be damaged; nothing was added.

        Args:
            found: what was found so far; a record that is its last one is not added again.
            wanted: the hash.
            max_num: length of ``found`` that is sufficient.
            begin: lowest store time of the records, ms.
            end: highest store time of the records, ms.
            drained: number of the first entry that is not on disk; not used read-only.
            is_checked: the chain was read in Python: entries of zeros are valid.
        """
        cdef Chain chain
        cdef Py_ssize_t at
        cdef FileMap mapped = self.mapped  # keeps it open
        begin_chain(&chain, max_num - len(found), begin, end)
        chain.began, chain.drained, chain.is_checked = self.begin, drained, is_checked
        if found:
            chain.after, chain.has_before = found[len(found) - 1], True
        try:
            with nogil:
                if mapped is None or chain_places(self, mapped, wanted, &chain) < 0:
                    with gil:
                        return False
            for at in range(chain.count):
                found.append(chain.places[at])
            return True
        finally:
            free(chain.many)


cdef class ChainFiles:
    """All index files of a store, the oldest first, and whether they were closed.

    The tuple is replaced, never changed: readers need no lock.
    """

    @property
    def closed(self):
        """Whether the index is closed."""
        return self.is_closed

    @closed.setter
    def closed(self, given):
        self.is_closed = truth(given, "closed")


cdef bint _is_blank(const uint8_t *entry) noexcept nogil:
    return load32(entry) == 0 and load64(entry + AT_TIME_OF_ENTRY) == 0


cdef int _check_signals() except -1 with gil:
    return PyErr_CheckSignals()


cdef bint _add(Chain *chain, int64_t phy) except -1 nogil:
    cdef int64_t *more
    if chain.count == chain.room:
        more = <int64_t *> realloc(chain.many, 2 * chain.room * sizeof(int64_t))
        if more == NULL:
            raise MemoryError
        if chain.many == NULL:
            memcpy(more, chain.few, sizeof(chain.few))
        chain.places = chain.many = more
        chain.room *= 2
    chain.places[chain.count] = chain.after = phy
    chain.count += 1
    chain.has_before = True
    return True


cdef int chain_places(
    ChainFile index_file, FileMap file, int64_t wanted, Chain *chain
) except -2 nogil:
    """Add the phy offsets of a chain of any length; -1: it may be damaged.

    Raises the exceptions of signal handlers.
    """
    cdef uint8_t data[INDEX_HEADER]
    cdef int64_t slots = index_file.slots, limit = index_file.entries
    cdef int64_t base, index, stored, phy, looked = 0, at, size
    cdef int32_t diff
    cdef bint read_only = index_file.is_read_only
    if not (1 <= slots <= MAX_IN_FILE and 1 <= limit <= MAX_IN_FILE and wanted >= 0):
        return -1
    base = INDEX_HEADER + INDEX_SLOT * slots
    if not file.read(data, INDEX_SLOT, INDEX_HEADER + INDEX_SLOT * (wanted % slots)):
        return -1
    index = load32(data)
    if index == 0 and not chain.is_checked and (
        file.ends_before(INDEX_HEADER + INDEX_SLOT * (wanted % slots + 1))
    ):
        return -1
    if read_only:  # after the slot: a header written before it covers the slot's entry
        if not file.read(data, INDEX_HEADER, 0):
            return -1
        chain.began = load64(data)
        limit = min(max(<int64_t> load32(data + AT_INDEX_COUNT), <int64_t> 1), limit)
    chain.began = min(chain.began, MAX_TIME)  # seconds are added to it
    while 0 < index < limit and chain.count < chain.max_num:
        looked += 1
        if looked % SIGNAL_STEP == 0:
            _check_signals()
        at = base + INDEX_ENTRY * index
        size = INDEX_ENTRY
        if not chain.is_checked:  # also the hash of the next entry
            size = min(<int64_t> INDEX_ENTRY + AT_PHY_OF_ENTRY, file.size - at)
        if size < INDEX_ENTRY or not file.read(data, size, at):
            return -1
        if not chain.is_checked and (
            (size == INDEX_ENTRY or load32(data + INDEX_ENTRY) == 0)
            and file.ends_before(at + INDEX_ENTRY - 1)  # may be truncated within the entry
            or load64(data + AT_PHY_OF_ENTRY) == 0 and _is_blank(data)  # which may be a real entry
        ):
            return -1
        diff = load32(data + AT_TIME_OF_ENTRY)
        if diff < 0:
            return 0
        if read_only or index < chain.drained:
            stored = chain.began + (<int64_t> 1000 * diff if index > 1 else 0)
            phy = load64(data + AT_PHY_OF_ENTRY)
            if load32(data) == wanted and chain.begin <= stored <= chain.end:
                if phy != chain.after or not chain.has_before:
                    _add(chain, phy)
            if stored < chain.begin:
                return 0
        limit = index
        index = load32(data + AT_PREVIOUS_OF_ENTRY)
    return 0


cdef int has_key(
    StoredMessage message, const char *topic, Py_ssize_t topic_size, const char *key,
    Py_ssize_t key_size,
) noexcept:
    """Return whether the message has the topic and the key; -1: its topic is not plain."""
    cdef const char *data = <const char *> message.data + message.places.topic
    cdef const char *end = <const char *> message.data + message.places.topic_end
    cdef const char *keys = NULL
    cdef const char *uniq = NULL
    cdef const char *word_end
    cdef Property found
    cdef Py_ssize_t keys_size = 0, uniq_size = 0
    if end - data != topic_size or memcmp(data, topic, topic_size) != 0:
        while data < end:
            if data[0] & 0x80:
                return -1
            data += 1
        return 0
    if load32(message.data + AT_SYS_FLAG) & PASSED_OVER:
        return 0
    found.after = <const char *> message.data + message.places.properties
    end = <const char *> message.data + message.places.size
    while next_property(&found, end):  # the last of equal names counts
        if is_named(&found, b"KEYS", 4):
            keys, keys_size = found.value, found.value_size
        elif is_named(&found, b"UNIQ_KEY", 8):
            uniq, uniq_size = found.value, found.value_size
    if uniq_size == key_size and memcmp(uniq, key, key_size) == 0:
        return 1
    end = keys + keys_size
    while keys_size > 0 and keys < end:
        word_end = <const char *> memchr(keys, c" ", end - keys)
        if word_end == NULL:
            word_end = end
        if word_end - keys == key_size and memcmp(keys, key, key_size) == 0:
            return 1
        keys = word_end + 1
    return 0
