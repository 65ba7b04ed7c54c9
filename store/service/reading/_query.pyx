# cython: language_level=3, boundscheck=False, wraparound=False
"""FastQuery: queries by key, served from the maps of index and log."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memchr

from cqstore.store.core._arguments cimport PyLong_AsLongLongAndOverflow
from cqstore.store.core._bytes cimport fetch_ahead, load32, load64
from cqstore.store.core._faults cimport is_of_whole_map, log_faults_seen
from cqstore.store.core._hashes cimport HASH_SIGN, hash_utf8, without_sign
from cqstore.store.core._layout cimport BLANK_BYTES, MIN_RECORD
from cqstore.store.core._maps cimport FileMap
from cqstore.store.index._batch cimport KeyColumns
from cqstore.store.index._chain cimport (
    Chain, ChainFile, ChainFiles, begin_chain, chain_places, has_key, slot_ahead,
)
from cqstore.store.log._log cimport FastLog, Part
from cqstore.store.record._parse cimport ends_in_file, parse_record
from cqstore.store.record._stored cimport StoredMessage
from cqstore.store.service._results cimport QueryMessageResult

cdef extern from "Python.h":
    int PyList_Append(object, object) except -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)

cdef enum:
    LINE = 64  # bytes of a cache line
    LINES = 6  # of a record, which are prefetched
    RECORDS = 4  # number of records that are prefetched


cdef struct Name:
    # The text to search, in UTF-8; the holder of this struct keeps the texts alive.
    const char *topic
    const char *key
    Py_ssize_t topic_size, key_size
    int64_t begin, end  # store times, ms, both included


cdef class FastQuery:
    """Queries by key of one store, each served completely or left to the slow path.

    Served are queries for a key without pending entries, if chains can be followed, records are
    valid, and all text is plain. Any thread.
    """

    cdef FastLog log
    cdef ChainFiles index
    cdef object others
    cdef int64_t file_size, max_messages
    cdef Part last  # the part of the log read last; used only to prefetch, it may be unmapped

    def __init__(
        self, FastLog log not None, ChainFiles index, int64_t file_size,
        int64_t max_messages=INT64_MAX, others=None,
    ):
        """Set the log, with files of ``file_size`` bytes, and the index, ``None`` without one.

        ``max_messages`` limits each result. ``others`` are the other indexes; ``None``: the index
        is incomplete, so that ``all_times`` serves no query.
        """
        self.log, self.index, self.file_size = log, index, file_size
        self.max_messages, self.others = max_messages, others

    def all_times(self, topic, key, max_num):
        """Return the result of ``query`` for any time, if the index is complete and the only one.

        ``None``: the query is left to the slow path, which also checks the arguments.
        """
        if self.others is None or not self.others.are_none:
            return None
        return self.query(topic, key, max_num, INT64_MIN, INT64_MAX)

    cpdef query(self, topic, key, max_num, begin, end):
        """Return at most ``max_num`` messages, and if there are more, as ``KeyQueries.in_files``.

        ``None``: the query is left to the slow path.
        """
        cdef Chain chain
        cdef Name name
        cdef int64_t wanted, limit
        cdef tuple files
        if not _is_ordinary(topic, key, &name):
            return None
        if not (_fits(max_num, &limit) and _fits(begin, &name.begin) and _fits(end, &name.end)):
            return None
        if self.index is None or self.index.is_closed or self.index.files is None:
            return None
        files = self.index.files
        wanted = without_sign(hash_utf8(
            hash_utf8(0, name.topic, name.topic_size) * 31 + HASH_SIGN, name.key, name.key_size
        ))
        limit = min(max(limit, <int64_t> 0), self.max_messages, INT64_MAX - 1)
        # For any time: the index stores seconds, and would end at the first entry that is too
        # early.
        begin_chain(&chain, limit + 1, INT64_MIN, INT64_MAX)
        try:
            if not self._walk_all(files, topic, key, wanted, &chain):
                return None
            return self._messages(&chain, &name)
        finally:
            free(chain.many)

    cdef bint _walk_all(self, tuple files, topic, key, int64_t wanted, Chain *chain) except -1:
        """Add the phy offsets of a key, the newest file first; False: the slow path is needed."""
        cdef Py_ssize_t number
        cdef ChainFile file
        for number in range(len(files) - 1, -1, -1):
            one = files[number]
            if not isinstance(one, ChainFile):
                return False
            file = <ChainFile> one
            slot_ahead(file, wanted)
            if file.is_read_only:
                one.refresh()
            if not self._walk(file, topic, key, wanted, chain):
                return False
            if chain.count >= chain.max_num:
                break
        return True

    cdef bint _walk(self, ChainFile file, topic, key, int64_t wanted, Chain *chain) except -1:
        """Add the phy offsets of a key's chain in one file; False: it is left to the slow path.

        Pending keys are searched before the disk: keys written meanwhile were among them.
        """
        cdef KeyColumns pending = file.pending
        cdef FileMap mapped
        cdef int walked
        cdef Part last
        chain.began, chain.drained = file.begin, file.drained  # consistent with `pending`
        if pending is None or (pending.entries.used and pending.found(topic, key)):
            return False
        mapped = file.mapped  # keeps it open
        if mapped is None:
            return False
        last = self.last  # under the GIL: another query sets it
        with nogil:
            walked = chain_places(file, mapped, wanted, chain)
            _ahead(&last, chain)
        return walked == 0

    cdef object _messages(self, Chain *chain, const Name *name):
        """Return the messages with topic, key and time, in log order; ``None``: the slow path."""
        cdef Py_ssize_t at
        cdef list files = []
        cdef QueryMessageResult found = QueryMessageResult.__new__(QueryMessageResult)
        cdef Part part
        cdef StoredMessage message
        cdef StoredMessage last = None  # in the current part
        cdef int64_t phy, size
        cdef int held
        _ascending(chain.places, chain.count)
        part.start = part.end = 0
        for at in range(chain.count):
            phy = chain.places[at]
            if phy < 0:
                return None
            if not part.start <= phy < part.end:
                if not (_is_whole(last) and self.log.open(phy, &part, files)):
                    return None
                self.last = part
            if part.end - phy < MIN_RECORD:
                return None
            message = StoredMessage.__new__(StoredMessage)
            message.data = part.data + (phy - part.start)
            size = load32(message.data)
            if size > part.end - phy or size + BLANK_BYTES > self.file_size - phy % self.file_size:
                return None
            if not parse_record(message.data, size, &message.places):
                message.places.size = 0
                return None
            message.held, last = files[len(files) - 1], message
            held = has_key(message, name.topic, name.topic_size, name.key, name.key_size)
            if held < 0:
                return None
            if held and name.begin <= load64(message.data + message.places.stored) <= name.end:
                PyList_Append(found, message)
        if len(found) < chain.count and chain.count >= chain.max_num:
            return None  # some have another key with that hash, or another time: there may be more
        if len(found) >= chain.max_num:
            found.has_more = True
            del found[0]  # the oldest
        return found if _is_whole(last) else None


cdef void _ahead(const Part *last, const Chain *chain) noexcept nogil:
    """Prefetch records in one part of the log, while waiting for the GIL."""
    cdef int64_t at
    cdef Py_ssize_t number, line
    for number in range(min(chain.count, <Py_ssize_t> RECORDS)):
        at = chain.places[number] - last.start
        if 0 <= at < last.end - last.start:
            for line in range(LINES):
                fetch_ahead(last.data + at + line * LINE)


cdef bint _is_ordinary(topic, key, Name *name) except -1:
    """Set the texts; False: no record can have the key, or its bytes are not sufficient."""
    if type(topic) is not str or type(key) is not str:
        return False
    try:
        name.topic = PyUnicode_AsUTF8AndSize(topic, &name.topic_size)
        name.key = PyUnicode_AsUTF8AndSize(key, &name.key_size)
    except UnicodeEncodeError:
        return False
    if not name.key_size or memchr(name.key, c" ", name.key_size) != NULL:
        return False
    return PyUnicode_IS_ASCII(key) or "\ufffd" not in key


cdef inline bint _is_whole(StoredMessage last) noexcept:
    """Return whether a record that was read is valid, and all before it in its file."""
    if log_faults_seen():
        return False
    return last is None or ends_in_file(last.data, &last.places) or is_of_whole_map(last.data)


cdef void _ascending(int64_t *places, Py_ssize_t count) noexcept nogil:
    """Sort phy offsets that are mostly descending."""
    cdef Py_ssize_t at, to
    cdef int64_t place
    for at in range(count // 2):
        places[at], places[count - 1 - at] = places[count - 1 - at], places[at]
    for at in range(1, count):
        place, to = places[at], at
        while to > 0 and places[to - 1] > place:
            places[to] = places[to - 1]
            to -= 1
        places[to] = place


cdef inline bint _fits(number, int64_t *to) noexcept:
    """Convert a plain int that fits a C number."""
    cdef int overflow = 0
    if type(number) is not int:
        return False
    to[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0
