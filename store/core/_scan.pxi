# BlockScan and Noting: the records of a block of log bytes, and their way into the columns.

cdef extern from "_record.h":
    int64_t get64(const char *at)

cdef enum:
    MOST_V1_TOPIC = 127
    V6_FLAGS = 0x30
    UNQUEUED = 0x4
    TRANSACTION = 0xC
    ROLLBACK = 0xC
    LONG_BODY = 4096  # from here on the library's checksum is the faster one


cdef class BlockScan:
    """See ``store.record.scan.scan_block``, the twin, which is asked about whatever is not plain."""

    cdef object _made, _rules, _topics, _learn, _check_one, _crc32
    cdef bytes _data
    cdef int64_t _phy_offset, _left, _position, _behind, _last_end, _most_offset, _magic
    cdef bint _check_crc, _fast

    def __init__(
        self, made, bytes data not None, int64_t phy_offset, int64_t left, rules, topics,
        check_one, crc32, int64_t most_offset, int64_t magic,
    ):
        self._made, self._data, self._phy_offset, self._left = made, data, phy_offset, left
        self._behind = phy_offset
        self._last_end = min(<int64_t> len(data), left - BLANK)
        self._rules, self._check_crc, self._fast = rules, rules.check_crc, not rules.property_crc
        self._topics, self._learn, self._check_one = topics, topics.learn_name, check_one
        self._crc32, self._most_offset, self._magic = crc32, most_offset, magic

    def __iter__(self):
        return self

    @property
    def behind(self):
        return self._behind

    def __next__(self):
        cdef int64_t position = self._position
        if position + FIXED >= len(self._data):
            raise StopIteration
        found = self._plain(PyBytes_AS_STRING(self._data) + position)
        if found is None:
            found = self._check_one(
                self._data, position, self._left - position, self._phy_offset + position,
                self._rules,
            )
            if found is None:
                self._position = len(self._data)
                raise StopIteration
            self._position = position + <int64_t> found.size
        self._behind = self._phy_offset + self._position
        return found

    cdef object _plain(self, const char *record):
        """Return the record there if it is plain, and go behind it."""
        cdef int64_t size = get32(record), body_size = get32(record + 84)
        cdef int64_t flags = get32(record + 36), offset = get64(record + 20)
        cdef int64_t phy_offset = self._phy_offset + self._position
        cdef int64_t topic_at = FIXED + body_size, topic_size, properties_size, properties_at
        if not (
            self._fast and get32(record + 4) == self._magic and not flags & V6_FLAGS
            and 0 <= body_size and topic_at < size - 2
            and self._position + size <= self._last_end
        ):
            return None
        topic_size = <unsigned char> record[topic_at]
        properties_at = topic_at + 1 + topic_size + 2
        if topic_size > MOST_V1_TOPIC or properties_at - 2 >= size - 1:
            return None
        properties_size = get16(record + properties_at - 2)
        if not (
            properties_at + properties_size == size and properties_size <= MOST_PROPERTIES
            and get64(record + 28) == phy_offset and 0 <= offset < self._most_offset
        ):
            return None
        name = PyBytes_FromStringAndSize(record + topic_at + 1, topic_size)
        cdef PyObject *known = PyDict_GetItemWithError(self._topics, name)
        topic = <object> known if known != NULL else self._learn(name)
        if not topic or not self._is_sound(record, body_size):
            return None
        self._position += size
        return _new(self._made, (
            phy_offset, size, topic, get32(record + 12), offset, flags, get64(record + 56),
            PyBytes_FromStringAndSize(record + properties_at, properties_size),
        ))

    cdef bint _is_sound(self, const char *record, int64_t body_size) except -1:
        cdef int64_t crc = get32(record + 8)
        if not self._check_crc or not body_size:
            return True
        if body_size < LONG_BODY:
            return (crc_of(record + FIXED, body_size) & 0x7FFFFFFF) == crc
        body = PyBytes_FromStringAndSize(record + FIXED, body_size)
        return (<int64_t> self._crc32(body) & 0x7FFFFFFF) == crc


cdef class Noting:
    """Notes scanned records in batches, see ``store.service.dispatching.replay``, the twin."""

    cdef _Columns _columns
    cdef object _note, _deleted, _scheduled
    cdef bint _keys_wanted, _tags_wanted

    def __init__(
        self, *, note, deleted, scheduled, queue_key, tags_prefix, keys_wanted, tags_wanted
    ):
        self._columns = _Columns(queue_key, tags_prefix)
        self._note, self._deleted, self._scheduled = note, deleted, scheduled
        self._keys_wanted, self._tags_wanted = keys_wanted, tags_wanted

    def fill(self, records, result, units, keys, int64_t queues_from, index_from, int64_t full_at):
        """Note ``records`` until ``full_at`` units wait; return whether there may be more."""
        cdef int64_t count = 0, index_start = -1 if index_from is None else index_from
        cdef bint has_index = index_from is not None and self._keys_wanted
        cdef bint none_deleted = not len(self._deleted)  # nobody deletes meanwhile
        cdef _Columns columns = self._columns.of(units, keys)
        last = None
        first = None
        try:
            for record in records:
                if first is None:
                    first = record
                last = record
                count += 1
                if not none_deleted or not self._add(
                    columns, <tuple> record, queues_from, has_index, index_start
                ):
                    self._note(record, units, keys, queues_from, index_from)
                if len(columns.queue_index) >= full_at:
                    return True
        finally:
            result.note_several(first, last, count)
        return False

    cdef bint _add(
        self, _Columns columns, tuple record, int64_t queues_from, bint has_index,
        int64_t index_start,
    ) except -1:
        """Add a plain record; return whether it is one."""
        cdef int64_t phy_offset = record[0], size = record[1], flags = record[5]
        cdef int64_t timestamp = record[6]
        cdef bytes properties = record[7]
        cdef const char *start = PyBytes_AS_STRING(properties)
        cdef const char *end = start + PyBytes_GET_SIZE(properties)
        cdef const char *value_end
        cdef const char *name_end
        cdef Py_ssize_t name_size
        topic, tags, words, uniq_key = record[2], None, None, None
        if topic == self._scheduled:
            return False
        while start < end:
            value_end = <const char *> memchr(start, VALUE_END, end - start)
            if value_end == NULL:
                value_end = end
            name_end = <const char *> memchr(start, NAME_END, value_end - start)
            if name_end != NULL and name_end + 1 < value_end:
                name_size = name_end - start
                if name_size >= 6 and memcmp(start, b"INNER_", 6) == 0:
                    return False
                if name_size == 4 and memcmp(start, b"TAGS", 4) == 0:
                    tags = _text(name_end + 1, value_end)
                elif name_size == 4 and memcmp(start, b"KEYS", 4) == 0:
                    words = _text(name_end + 1, value_end)
                elif name_size == 8 and memcmp(start, b"UNIQ_KEY", 8) == 0:
                    uniq_key = _text(name_end + 1, value_end)
            start = value_end + 1
        if phy_offset >= queues_from:
            if not flags & UNQUEUED:
                columns.grow(1)
                columns.add(
                    (topic, record[3]), record[4], phy_offset, size,
                    _hash(tags) if tags is not None else 0, timestamp,
                )
            columns.units.end_phy_offset = phy_offset + size
        if has_index and phy_offset >= index_start and flags & TRANSACTION != ROLLBACK:
            columns.add_keys(
                topic, uniq_key, words, tags if self._tags_wanted else None, phy_offset, timestamp
            )
        return True


cdef object _text(const char *start, const char *end):
    return PyUnicode_DecodeUTF8(start, end - start, "replace")
