# What was looked at of a message, the memory for it, and what it becomes. Part of `_core.pyx`.


cdef extern from "_record.h":
    char *put32(char *at, uint32_t value)
    char *put64(char *at, unsigned long long value)

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
    Py_ssize_t topic_size, body_size, properties_at, properties_size, size
    int64_t magic, queue_id, flag, sys_flag, born, reconsumed, prepared
    int32_t tags_code
    uint32_t crc


cdef class _Scratch:
    """What the messages of one call are looked at in; the next call begins anew."""

    cdef Plain *plain
    cdef char *properties
    cdef Py_ssize_t most, room, used, count, total
    cdef list keys

    def __cinit__(self):
        self.keys = []

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


cdef void _heed(Plain *plain, const char *name, Py_ssize_t size, PyObject *value) noexcept:
    """Keep the value if it is one that dispatch needs."""
    if size == 4 and memcmp(name, b"TAGS", 4) == 0:
        plain.tags = value
    elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
        plain.words = value
    elif size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        plain.uniq_key = value


cdef void _write(
    Plain *plain, const char *properties, char *start, int64_t offset, int64_t phy_offset,
    int64_t now,
) noexcept:
    """Write a record to ``start``, its size and magic code last: from there on it is one."""
    cdef char *out = put32(start + AT_CRC, plain.crc)
    out = put32(put32(out, <uint32_t> plain.queue_id), <uint32_t> plain.flag)
    out = put64(put64(out, offset), phy_offset)
    out = put64(put32(out, <uint32_t> plain.sys_flag), plain.born)
    out = put64(put_bytes(out, plain.born_host, HOST_V4), now)
    out = put_bytes(out, plain.store_host, HOST_V4)
    out = put64(put32(out, <uint32_t> plain.reconsumed), plain.prepared)
    out = put_bytes(put32(out, <uint32_t> plain.body_size), plain.body, plain.body_size)
    out = put_bytes(out, plain.topic, plain.topic_size)
    out = put16(out, <unsigned short> plain.properties_size)
    put_bytes(out, properties + plain.properties_at, plain.properties_size)
    in_this_order()
    put32(put32(start, <uint32_t> plain.size), <uint32_t> plain.magic)
