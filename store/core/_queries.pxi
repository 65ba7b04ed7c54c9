# Queries by key: the chain of an index file, and the records that it leads to. Part of
# `_reads.pyx`.

cdef enum:
    INDEX_HEADER = 40
    INDEX_SLOT = 4
    INDEX_ENTRY = 20
    AT_INDEX_COUNT = 36
    MOST_ENTRIES = 4096  # that one call looks at, so that none is long
    MOST_PLACES = 64
    MOST_IN_FILE = 0x7FFFFFFF  # slots, and entries: their numbers have four bytes

cdef int64_t MOST_TIME = <int64_t> 1 << 62


def walk_chain(
    list before not None, int fd, int64_t slots, int64_t entries, int64_t wanted, int64_t most,
    int64_t begin, int64_t end, int64_t began, int64_t drained, bint read_only,
):
    """Return the phy offsets that the chain of a hash leads to, newest first; ``None``: not plain.

    Args:
        before: what was found until now, and is returned before the others.
        fd: an index file, held by the caller.
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
    chain.most = most - len(found)
    chain.begin, chain.end, chain.began = begin, end, began
    chain.entries, chain.drained, chain.read_only = entries, drained, read_only
    chain.after, chain.has_before = last, len(found) > 0
    with nogil:
        at = chain_places(fd, slots, wanted, &chain)
    if at < 0:
        return None
    for at in range(chain.count):
        found.append(chain.places[at])
    return found


def query_files(tuple files not None, topic, key, max_num, begin, end):
    """Return what ``IndexService.query`` does of these files, oldest first; ``None``: not plain.

    Plain are a key that does not wait in memory, and chains that ``walk_chain`` can walk.
    """
    cdef Chain chain
    cdef int64_t most, wanted
    cdef Py_ssize_t number, at
    cdef list found = []
    if type(topic) is not str or type(key) is not str:
        return None
    if not (_fits(max_num, &most) and _fits(begin, &chain.begin) and _fits(end, &chain.end)):
        return None
    wanted = _without_sign(_hash_on(_hash_on(0, topic) * 31 + HASH_SIGN, key))
    for number in range(len(files) - 1, -1, -1):
        file = files[number]
        chain.read_only = file.read_only
        if chain.read_only:
            file.refresh()
        if chain.begin <= <int64_t> file.end_timestamp and chain.end >= <int64_t> file.begin_timestamp:
            chain.most = most - len(found)
            if not _walk_file(file, topic, key, wanted, &chain):
                return None
            at = 1 if chain.count and found and found[len(found) - 1] == chain.places[0] else 0
            for at in range(at, chain.count):  # entries of one record may lie in two files
                found.append(chain.places[at])
        if len(found) >= most or (<int64_t> file.begin_timestamp < chain.begin and file.count):
            break
    return found


cdef inline bint _fits(number, int64_t *to) noexcept:
    """Take a plain number that a C number holds."""
    cdef int overflow = 0
    if type(number) is not int:
        return False
    to[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef bint _walk_file(file, topic, key, int64_t wanted, Chain *chain) except -1:
    """Fill the places of the chain of a key; False: it is not plain.

    What waits is looked at before the disk: what was written since was among it.
    """
    cdef tuple waiting = file.waiting
    cdef int64_t slots, entries
    cdef int fd
    cdef int walked
    pending = waiting[0]
    if pending.keys and pending.find(topic, key):
        return False
    opened = file.opened  # held while its number is in use
    if opened is None:
        return False
    slots, entries = file.geometry
    chain.began, chain.drained = file.begin_timestamp, waiting[1]
    chain.entries, chain.after, chain.has_before = entries, -1, False
    fd = opened.number
    with nogil:
        walked = chain_places(fd, slots, wanted, chain)
    return walked == 0


cdef struct Chain:
    # What is asked of a chain, see `walk_chain`, and what was found.
    int64_t most, begin, end, began, entries, drained, after
    bint read_only, has_before
    Py_ssize_t count
    int64_t places[MOST_PLACES]


cdef int chain_places(int fd, int64_t slots, int64_t wanted, Chain *chain) noexcept nogil:
    """Fill the places of a chain; -1: it is not plain."""
    cdef uint8_t data[INDEX_HEADER]
    cdef int64_t base, index, limit = chain.entries, stored, phy, looked = 0
    cdef int32_t diff
    chain.count = 0
    if not (1 <= slots <= MOST_IN_FILE and 1 <= limit <= MOST_IN_FILE and wanted >= 0):
        return -1
    if not -MOST_TIME <= chain.began <= MOST_TIME:
        return -1
    base = INDEX_HEADER + INDEX_SLOT * slots
    if pread(fd, data, INDEX_SLOT, INDEX_HEADER + INDEX_SLOT * (wanted % slots)) != INDEX_SLOT:
        return -1
    index = load32(data)
    if chain.read_only:  # behind the slot: a header written before it covers the slot's entry
        if pread(fd, data, INDEX_HEADER, 0) != INDEX_HEADER:
            return -1
        chain.began = load64(data)
        if not -MOST_TIME <= chain.began <= MOST_TIME:
            return -1
        limit = min(max(<int64_t> load32(data + AT_INDEX_COUNT), <int64_t> 1), limit)
    while 0 < index < limit and chain.count < chain.most:
        looked += 1
        if looked > MOST_ENTRIES or chain.count == MOST_PLACES:
            return -1
        if pread(fd, data, INDEX_ENTRY, base + INDEX_ENTRY * index) != INDEX_ENTRY:
            return -1
        diff = load32(data + 12)
        if diff < 0:
            return 0
        if chain.read_only or index < chain.drained:
            stored = chain.began + (<int64_t> 1000 * diff if index > 1 else 0)
            phy = load64(data + 4)
            if load32(data) == wanted and chain.begin <= stored <= chain.end:
                if phy != chain.after or not chain.has_before:
                    chain.places[chain.count] = phy
                    chain.count += 1
                    chain.after, chain.has_before = phy, True
            if stored < chain.begin:
                return 0
        limit = index
        index = load32(data + 16)
    return 0


def messages_with_key(PlainLog log not None, int64_t file_size, phy_offsets, topic, key):
    """Return the messages of ``topic`` at these places that have ``key``; ``None``: not plain.

    Plain are records that are whole, in files of ``file_size`` bytes, and text without an odd
    letter.
    """
    cdef const char *topic_text
    cdef const char *key_text
    cdef Py_ssize_t topic_size = 0, key_size = 0
    cdef list files = [], found = []
    cdef Part part
    cdef StoredMessage message
    cdef int64_t phy, size
    cdef int held
    if type(topic) is not str or type(key) is not str or not key or "\ufffd" in key or " " in key:
        return None
    try:
        topic_text = PyUnicode_AsUTF8AndSize(topic, &topic_size)
        key_text = PyUnicode_AsUTF8AndSize(key, &key_size)
    except UnicodeEncodeError:
        return None
    part.start = part.end = 0
    for phy in phy_offsets:
        if phy < 0 or (
            not part.start <= phy < part.end and not log.open(phy, &part, files)
        ):
            return None
        if part.end - phy < LEAST_RECORD:
            return None
        message = StoredMessage.__new__(StoredMessage)
        message.data = part.data + (phy - part.start)
        size = load32(message.data)
        if size > part.end - phy or size + BLANK_BYTES > file_size - phy % file_size:
            return None
        if not find_places(message.data, size, &message.places):
            message.places.size = 0
            return None
        message.held = files[len(files) - 1]
        held = has_key(message, topic_text, topic_size, key_text, key_size)
        if held < 0:
            return None
        if held:
            found.append(message)
    return found


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
