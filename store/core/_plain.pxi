# What is looked at of a message, where its fields lie, and the memory for it.


cdef struct Plain:
    # One message, looked at; it keeps what the pointers lead to, and nobody changes it meanwhile.
    const char *topic  # its length before it
    const char *body
    const char *born_host
    const char *store_host
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


cdef class _Slots:
    """Where the fields lie of what a put looks at. Made of the classes themselves."""

    cdef object message, host
    cdef Py_ssize_t topic, body, queue_id, properties, flag, sys_flag, born, born_host, store_host
    cdef Py_ssize_t reconsumed, prepared, wire

    def __init__(self, message, host):
        self.message, self.host = message, host
        self.topic, self.body = slot_of(message, b"topic"), slot_of(message, b"body")
        self.queue_id = slot_of(message, b"queue_id")
        self.properties = slot_of(message, b"properties")
        self.flag, self.sys_flag = slot_of(message, b"flag"), slot_of(message, b"sys_flag")
        self.born = slot_of(message, b"born_timestamp")
        self.born_host = slot_of(message, b"born_host")
        self.store_host = slot_of(message, b"store_host")
        self.reconsumed = slot_of(message, b"reconsume_times")
        self.prepared = slot_of(message, b"prepared_transaction_offset")
        self.wire = slot_of(host, b"wire")
        if not (
            self.topic and self.body and self.queue_id and self.properties and self.flag
            and self.sys_flag and self.born and self.born_host and self.store_host
            and self.reconsumed and self.prepared and self.wire
        ):
            raise TypeError("a message and a host keep their fields in slots")
