# What was looked at of a message, the memory for it, and what it becomes. Part of `_core.pyx`.


cdef extern from "_record.h":
    char *put16(char *at, unsigned short value) noexcept nogil
    char *put32(char *at, uint32_t value) noexcept nogil
    char *put64(char *at, unsigned long long value) noexcept nogil
    char *put_bytes(char *at, const char *data, size_t size) noexcept nogil
    void in_this_order() noexcept nogil

cdef enum:
    MAX_DIGITS = 9  # of a delay level
    # What properties may ask for, by their names.
    LATER = 1 << 0  # a delivery later on, by a level
    LATER_BY_TIMER = 1 << 1
    TIMER_IS_OVER = 1 << 2
    LIGHT_QUEUES = 1 << 3
    LIGHT_OFFSETS = 1 << 4
    INNER_COUNT = 1 << 5

cdef struct Plain:
    # One message, looked at; it keeps what the pointers lead to, and nobody changes it meanwhile.
    const char *topic  # its length before it
    const char *body
    const char *born_host
    const char *store_host
    KnownQueue *queue  # its place, as long as it has the key
    PyObject *key
    PyObject *stored_at
    PyObject *tags
    PyObject *uniq_key
    PyObject *words
    PyObject *delay
    Py_ssize_t topic_size, body_size, properties_at, properties_size, size
    Py_ssize_t born_size, store_size  # of its hosts
    int64_t magic, queue_id, flag, sys_flag, born, reconsumed, prepared
    int64_t offset, phy_offset  # where it goes, where that is found before it is written
    int32_t tags_code
    uint32_t crc
    int asks
    bint is_scheduled


cdef class _Scratch:
    """What the messages of one call are looked at in; the next call begins anew."""

    cdef Plain *plain
    cdef char *properties
    cdef Py_ssize_t most, room, used, count, total
    cdef Py_ssize_t most_body, most_total
    cdef list keys
    cdef bint is_held  # what the pointers lead to, in ``keys``: others run meanwhile
    cdef bint is_batch

    def __cinit__(self, Py_ssize_t most_body, Py_ssize_t most_total, *, bint is_held=False):
        self.keys, self.is_held = [], is_held
        self.most_body, self.most_total = most_body, most_total

    def __dealloc__(self):
        free(self.plain)
        free(self.properties)

    cdef int begin(self, Py_ssize_t count) except -1:
        cdef Plain *grown
        self.used = self.count = self.total = 0
        self.keys.clear()
        if count > self.most:
            grown = <Plain *> realloc(self.plain, count * sizeof(Plain))
            if grown == NULL:
                raise MemoryError
            self.plain, self.most = grown, count
        return 0

    cdef Plain *more(self) except NULL:
        """Return where one message more is looked at."""
        cdef Plain *grown
        if self.count == self.most:
            grown = <Plain *> realloc(self.plain, 2 * self.most * sizeof(Plain))
            if grown == NULL:
                raise MemoryError
            self.plain, self.most = grown, 2 * self.most
        self.count += 1
        return &self.plain[self.count - 1]

    cdef char *take(self, Py_ssize_t size) except NULL:
        """Return where ``size`` more bytes of properties go."""
        cdef char *grown
        if self.used + size >= self.room:  # so that there is a place for nothing too
            grown = <char *> realloc(self.properties, 2 * self.room + size + 256)
            if grown == NULL:
                raise MemoryError
            self.properties, self.room = grown, 2 * self.room + size + 256
        return self.properties + self.used


cdef object _three(object made, object first, object second, object third):
    """Return a tuple of the class ``made``."""
    found = tuple_to_fill(made, 3)
    _fill(found, 0, first)
    _fill(found, 1, second)
    _fill(found, 2, third)
    return found


cdef object _five(
    object made, object first, object second, object third, object fourth, object fifth
):
    """Return a tuple of the class ``made``."""
    found = tuple_to_fill(made, 5)
    _fill(found, 0, first)
    _fill(found, 1, second)
    _fill(found, 2, third)
    _fill(found, 3, fourth)
    _fill(found, 4, fifth)
    return found


cdef inline void _fill(object made, Py_ssize_t at, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)


cdef inline bint _is_queued(const Plain *plain) noexcept nogil:
    """Return whether a record takes part in its queue: not PREPARED, not ROLLBACK."""
    return not plain.sys_flag & PREPARED


cdef inline bint is_irregular(const char *name, Py_ssize_t size) noexcept:
    """Return whether a property by its name may ask for more than to be stored."""
    return size >= 5 and (
        memcmp(name, b"INNER", 5) == 0 or memcmp(name, b"DELAY", 5) == 0
        or memcmp(name, b"TIMER", 5) == 0
    )


cdef inline bint _is_named(
    const char *name, Py_ssize_t size, const char *other, Py_ssize_t other_size
) noexcept:
    return size == other_size and memcmp(name, other, size) == 0


cdef int asked_by(
    const char *name, Py_ssize_t size, const char *value, Py_ssize_t value_size
) noexcept:
    """Return what a property asks for that is irregular by its name; 0: nothing."""
    if _is_named(name, size, b"DELAY", 5):
        return 0 if _is_no_level(value, value_size) else LATER
    if (
        _is_named(name, size, b"TIMER_DELIVER_MS", 16) or _is_named(name, size, b"TIMER_DELAY_MS", 14)
        or _is_named(name, size, b"TIMER_DELAY_SEC", 15)
    ):
        return LATER_BY_TIMER
    if _is_named(name, size, b"TIMER_OUT_MS", 12):
        return TIMER_IS_OVER
    if _is_named(name, size, b"INNER_MULTI_DISPATCH", 20):
        return LIGHT_QUEUES
    if _is_named(name, size, b"INNER_MULTI_QUEUE_OFFSET", 24):
        return LIGHT_OFFSETS
    return INNER_COUNT if _is_named(name, size, b"INNER_NUM", 9) else 0


cdef bint _is_no_level(const char *text, Py_ssize_t size) noexcept:
    """Return whether Java reads a level of 0 or less; see ``delay_check``."""
    return is_level(text, size) and (text[0] == c"-" or _is_zero(text, size))


cdef bint is_level(const char *text, Py_ssize_t size) noexcept:
    """Return whether Java reads a number: up to nine digits, and maybe a sign."""
    cdef Py_ssize_t at = 1 if size and text[0] in (c"+", c"-") else 0
    if not 0 < size - at <= MAX_DIGITS:
        return False
    while at < size:
        if not c"0" <= text[at] <= c"9":
            return False
        at += 1
    return True


cdef bint _is_zero(const char *text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t at
    for at in range(size):
        if c"1" <= text[at] <= c"9":
            return False
    return True


cdef void _pick_dispatch_property(Plain *plain, const char *name, Py_ssize_t size, PyObject *value) noexcept:
    """Keep the value if it is one that dispatch needs."""
    if size == 4 and memcmp(name, b"TAGS", 4) == 0:
        plain.tags = value
    elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
        plain.words = value
    elif size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        plain.uniq_key = value
    elif size == 5 and memcmp(name, b"DELAY", 5) == 0:
        plain.delay = value


cdef inline char *_put_host(char *at, const char *wire, Py_ssize_t size) noexcept nogil:
    if size == HOST_V4:  # two copies of a length that the compiler knows
        return put_bytes(at, wire, HOST_V4)
    return put_bytes(at, wire, HOST_V6)


cdef void _write(
    const Plain *plain, const char *properties, char *start, int64_t offset, int64_t phy_offset,
    int64_t now, bint is_sealed,
) noexcept nogil:
    """Write a record to ``start``, its size and magic code last: from there on it is one.

    ``is_sealed``: its last property, which stands there already, gets the record's checksum.
    """
    cdef char *out = put32(start + AT_CRC, plain.crc & 0x7FFFFFFF)
    out = put32(put32(out, <uint32_t> plain.queue_id), <uint32_t> plain.flag)
    out = put64(put64(out, offset), phy_offset)
    out = put64(put32(out, <uint32_t> plain.sys_flag), plain.born)
    out = put64(_put_host(out, plain.born_host, plain.born_size), now)
    out = _put_host(out, plain.store_host, plain.store_size)
    out = put64(put32(out, <uint32_t> plain.reconsumed), plain.prepared)
    out = put_bytes(put32(out, <uint32_t> plain.body_size), plain.body, plain.body_size)
    out = put_bytes(out, plain.topic, plain.topic_size)
    out = put16(out, <unsigned short> plain.properties_size)
    put_bytes(out, properties + plain.properties_at, plain.properties_size)
    if is_sealed:
        _seal(plain, start)
    in_this_order()
    put32(put32(start, <uint32_t> plain.size), <uint32_t> plain.magic)


cdef void _seal(const Plain *plain, char *start) noexcept nogil:
    """Write the checksum of a whole record but for its last property into that one.

    Its digits stand with the least significant first, as RocketMQ writes them.
    """
    cdef char first[BLANK_BYTES]
    cdef Py_ssize_t covered = plain.size - CRC_PROPERTY_BYTES, at
    put32(put32(first, <uint32_t> plain.size), <uint32_t> plain.magic)
    cdef uint32_t crc = crc_on(0, first, BLANK_BYTES)
    crc = crc_on(crc, start + BLANK_BYTES, covered - BLANK_BYTES) & 0x7FFFFFFF
    for at in range(plain.size - 1 - CRC_DIGITS, plain.size - 1):
        start[at] = <char> (c"0" + crc % 10)
        crc //= 10
