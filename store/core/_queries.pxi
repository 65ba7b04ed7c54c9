# Queries by key: the chain of an index file, and the records that it leads to. Part of
# `_reads.pyx`.

from store.index._batch cimport KeyColumns

cdef enum:
    MAX_ENTRIES = 4096  # that one call looks at, so that none is long
    MAX_PLACES = 64
    MAX_IN_FILE = 0x7FFFFFFF  # slots, and entries: their numbers have four bytes

cdef int64_t MAX_TIME = <int64_t> 1 << 62


def walk_chain(
    list before not None, FileMap file not None, int64_t slots, int64_t entries, int64_t wanted,
    int64_t most, int64_t begin, int64_t end, int64_t began, int64_t drained, bint read_only,
):
    """Return the phy offsets that the chain of a hash leads to, newest first; ``None``: not plain.

    Args:
        before: what was found until now, and is returned before the others.
        file: an index file.
        slots: its slots.
        entries: the entries that it can have, the unused one included.
        wanted: the hash.
        most: records to return at most.
        begin: store time from which on they are wanted, ms.
        end: likewise, up to which.
        began: the file's begin timestamp; not used read-only.
        drained: number of the first entry that was not on disk when it was looked; as above.
        read_only: another process may write: the header on disk says how many entries there are.
    """
    cdef Chain chain
    cdef Py_ssize_t at
    cdef list found = list(before)
    cdef int64_t last = found[len(found) - 1] if found else -1
    chain.count = 0
    chain.most = most - len(found)
    chain.begin, chain.end, chain.began = begin, end, began
    chain.entries, chain.drained, chain.read_only = entries, drained, read_only
    chain.after, chain.has_before = last, len(found) > 0
    with nogil:
        at = chain_places(file, slots, wanted, &chain)
    if at < 0:
        return None
    for at in range(chain.count):
        found.append(chain.places[at])
    return found


cdef class FastQuery:
    """Queries by key of one store that find nothing odd, each wholly; the rest is the twin's.

    Plain are a key that does not wait in memory, chains that can be walked, records that are whole,
    and text without an odd letter. Any thread.
    """

    cdef PlainLog log
    cdef object index
    cdef int64_t file_size, most
    cdef Py_ssize_t at_files, at_closed  # of the index
    cdef object file_class
    cdef Py_ssize_t at_read_only, at_begin, at_end, at_waiting, at_mapped, at_geometry  # of a file

    def __init__(self, PlainLog log not None, index, file_class, int64_t file_size, int64_t most):
        """Take the log with files of ``file_size`` bytes, and the index.

        ``file_class`` is that of its files; ``most``: records of one query.
        """
        self.log, self.index, self.file_class = log, index, file_class
        self.file_size, self.most = file_size, most
        self.at_files, self.at_closed = its_slot(index, "files"), its_slot(index, "closed")
        self.at_read_only = slot_of_class(file_class, "read_only")
        self.at_begin = slot_of_class(file_class, "begin_timestamp")
        self.at_end = slot_of_class(file_class, "end_timestamp")
        self.at_waiting = slot_of_class(file_class, "waiting")
        self.at_mapped = slot_of_class(file_class, "mapped")
        self.at_geometry = slot_of_class(file_class, "geometry")

    def ask(self, topic, key, max_num, begin, end):
        """Return what ``StoreReads.query_message`` does; ``None``: it is not plain."""
        cdef Chain chain
        cdef int64_t most, wanted, began, ended
        cdef Py_ssize_t number
        cdef tuple files
        if type(topic) is not str or type(key) is not str:
            return None
        if not (_fits(max_num, &most) and _fits(begin, &chain.begin) and _fits(end, &chain.end)):
            return None
        if in_slot(<PyObject *> self.index, self.at_closed) != Py_False:
            return None
        files = <object> in_slot(<PyObject *> self.index, self.at_files)
        wanted = without_sign(hash_on(hash_on(0, topic) * 31 + HASH_SIGN, key))
        chain.count, chain.most = 0, min(most, self.most)
        for number in range(len(files) - 1, -1, -1):
            file = files[number]
            if type(file) is not self.file_class:
                return None
            chain.read_only = in_slot(<PyObject *> file, self.at_read_only) != Py_False
            if chain.read_only:
                file.refresh()
            began = <object> in_slot(<PyObject *> file, self.at_begin)
            ended = <object> in_slot(<PyObject *> file, self.at_end)
            if chain.begin <= ended and chain.end >= began:
                if not self._walk(file, topic, key, wanted, began, &chain):
                    return None
            if chain.count >= chain.most or (began < chain.begin and file.count):
                break
        return self._messages(&chain, topic, key)

    cdef bint _walk(
        self, file, topic, key, int64_t wanted, int64_t began, Chain *chain
    ) except -1:
        """Add the places of the chain of a key in one file; False: it is not plain.

        What waits is looked at before the disk: what was written since was among it.
        """
        cdef tuple waiting = <object> in_slot(<PyObject *> file, self.at_waiting)
        cdef FileMap mapped
        cdef int64_t slots
        cdef int walked
        cdef KeyColumns pending = waiting[0]
        if pending.entries.used and pending.found(topic, key):
            return False
        mapped = <object> in_slot(<PyObject *> file, self.at_mapped)  # held while it is read
        if mapped is None:
            return False
        slots, chain.entries = <object> in_slot(<PyObject *> file, self.at_geometry)
        chain.began, chain.drained = began, waiting[1]
        chain.has_before = chain.count > 0  # entries of one record may lie in two files
        chain.after = chain.places[chain.count - 1] if chain.count else -1
        with nogil:
            walked = chain_places(mapped, slots, wanted, chain)
        return walked == 0

    cdef object _messages(self, Chain *chain, topic, key):
        """Return the messages of ``topic`` that have ``key``, in log order; ``None``: not plain."""
        cdef const char *topic_text
        cdef const char *key_text
        cdef Py_ssize_t topic_size = 0, key_size = 0, at
        cdef list files = [], found = []
        cdef Part part
        cdef StoredMessage message
        cdef StoredMessage last = None  # in the part
        cdef int64_t phy, size
        cdef int held
        if not key or "\ufffd" in key or " " in key:
            return None
        try:
            topic_text = PyUnicode_AsUTF8AndSize(topic, &topic_size)
            key_text = PyUnicode_AsUTF8AndSize(key, &key_size)
        except UnicodeEncodeError:
            return None
        _ascending(chain.places, chain.count)
        part.start = part.end = 0
        for at in range(chain.count):
            phy = chain.places[at]
            if phy < 0:
                return None
            if not part.start <= phy < part.end:
                if not (_is_whole(last) and self.log.open(phy, &part, files)):
                    return None
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
            held = has_key(message, topic_text, topic_size, key_text, key_size)
            if held < 0:
                return None
            if held:
                found.append(message)
        return found if _is_whole(last) else None


cdef inline bint _is_whole(StoredMessage last) noexcept:
    """Return whether a record that was looked at is the log's, and all before it in its file."""
    if log_faults_seen():
        return False
    return last is None or ends_in_file(last.data, &last.places) or is_of_whole_map(last.data)


cdef void _ascending(int64_t *places, Py_ssize_t count) noexcept nogil:
    """Sort places that mostly descend."""
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
    """Take a plain number that a C number holds."""
    cdef int overflow = 0
    if type(number) is not int:
        return False
    to[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef struct Chain:
    # What is asked of a chain, see `walk_chain`, and what was found.
    int64_t most, begin, end, began, entries, drained, after
    bint read_only, has_before
    Py_ssize_t count
    int64_t places[MAX_PLACES]


cdef bint _is_blank(const uint8_t *entry) noexcept nogil:
    return load32(entry) == 0 and load64(entry + AT_TIME_OF_ENTRY) == 0


cdef int chain_places(FileMap file, int64_t slots, int64_t wanted, Chain *chain) noexcept nogil:
    """Add the places of a chain; -1: it is not plain."""
    cdef uint8_t data[INDEX_HEADER]
    cdef int64_t base, index, limit = chain.entries, stored, phy, looked = 0, at, size
    cdef int32_t diff
    if not (1 <= slots <= MAX_IN_FILE and 1 <= limit <= MAX_IN_FILE and wanted >= 0):
        return -1
    if not -MAX_TIME <= chain.began <= MAX_TIME:
        return -1
    base = INDEX_HEADER + INDEX_SLOT * slots
    if not file.read(data, INDEX_SLOT, INDEX_HEADER + INDEX_SLOT * (wanted % slots)):
        return -1
    index = load32(data)
    if index == 0 and file.ends_before(INDEX_HEADER + INDEX_SLOT * (wanted % slots + 1)):
        return -1
    if chain.read_only:  # behind the slot: a header written before it covers the slot's entry
        if not file.read(data, INDEX_HEADER, 0):
            return -1
        chain.began = load64(data)
        if not -MAX_TIME <= chain.began <= MAX_TIME:
            return -1
        limit = min(max(<int64_t> load32(data + AT_INDEX_COUNT), <int64_t> 1), limit)
    while 0 < index < limit and chain.count < chain.most:
        looked += 1
        if looked > MAX_ENTRIES or chain.count == MAX_PLACES:
            return -1
        at = base + INDEX_ENTRY * index
        size = min(<int64_t> INDEX_ENTRY + AT_PHY_OF_ENTRY, file.size - at)  # with the next one's hash
        if size < INDEX_ENTRY or not file.read(data, size, at):
            return -1
        if (size == INDEX_ENTRY or load32(data + INDEX_ENTRY) == 0) and (
            file.ends_before(at + INDEX_ENTRY - 1)  # cut within the entry, maybe
        ):
            return -1
        if load64(data + AT_PHY_OF_ENTRY) == 0 and _is_blank(data):  # the twin knows whether it may be
            return -1
        diff = load32(data + AT_TIME_OF_ENTRY)
        if diff < 0:
            return 0
        if chain.read_only or index < chain.drained:
            stored = chain.began + (<int64_t> 1000 * diff if index > 1 else 0)
            phy = load64(data + AT_PHY_OF_ENTRY)
            if load32(data) == wanted and chain.begin <= stored <= chain.end:
                if phy != chain.after or not chain.has_before:
                    chain.places[chain.count] = phy
                    chain.count += 1
                    chain.after, chain.has_before = phy, True
            if stored < chain.begin:
                return 0
        limit = index
        index = load32(data + AT_PREVIOUS_OF_ENTRY)
    return 0


cdef int has_key(
    StoredMessage message, const char *topic, Py_ssize_t topic_size, const char *key,
    Py_ssize_t key_size,
) noexcept:
    """Return whether the message is of the topic and has the key; -1: its topic is an odd one."""
    cdef const char *data = <const char *> message.data + message.places.topic
    cdef const char *end = <const char *> message.data + message.places.topic_end
    cdef const char *keys = NULL
    cdef const char *uniq = NULL
    cdef const char *value_end
    cdef const char *name_end
    cdef Py_ssize_t keys_size = 0, uniq_size = 0
    if end - data != topic_size or memcmp(data, topic, topic_size) != 0:
        while data < end:
            if data[0] & 0x80:
                return -1
            data += 1
        return 0
    if load32(message.data + AT_SYS_FLAG) & PASSED_OVER:
        return 0
    data = <const char *> message.data + message.places.properties
    end = <const char *> message.data + message.places.size
    while data < end:  # as `read_properties`: of a name that comes twice the last value counts
        value_end = <const char *> memchr(data, VALUE_END, end - data)
        if value_end == NULL:
            value_end = end
        name_end = <const char *> memchr(data, NAME_END, value_end - data)
        if name_end != NULL and name_end + 1 < value_end:
            if name_end - data == 4 and memcmp(data, b"KEYS", 4) == 0:
                keys, keys_size = name_end + 1, value_end - name_end - 1
            elif name_end - data == 8 and memcmp(data, b"UNIQ_KEY", 8) == 0:
                uniq, uniq_size = name_end + 1, value_end - name_end - 1
        data = value_end + 1
    if uniq_size == key_size and memcmp(uniq, key, key_size) == 0:
        return 1
    end = keys + keys_size
    while keys_size > 0 and keys < end:
        value_end = <const char *> memchr(keys, c" ", end - keys)
        if value_end == NULL:
            value_end = end
        if value_end - keys == key_size and memcmp(keys, key, key_size) == 0:
            return 1
        keys = value_end + 1
    return 0
