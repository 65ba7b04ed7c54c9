# cython: language_level=3, boundscheck=False, wraparound=False
"""StoredMessage: one record of the log; its fields are decoded on first access.

A record that is not plain is left to the slow path in Python, which decides what is valid and has
the error messages. Nothing from disk is trusted: every read is bounded by the object that it reads,
and each value that a bound depends on is read once.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport fetch_ahead, load32, load64
from cqstore.store.core._crc32 cimport crc_of, crc_prepare
from cqstore.store.core._faults cimport again_if_lost, log_faults_seen
from cqstore.store.core._layout cimport (
    AT_BODY_SIZE_OF_TAIL, AT_BORN, AT_CRC, AT_FLAG, AT_MAGIC, AT_PHY_OFFSET, AT_PREPARED_OF_TAIL,
    AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_SYS_FLAG, COMPRESSED, HEAD_BYTES, HOST_V4, PASSED_OVER,
    STAMP_BYTES, TAIL_BYTES,
)
from cqstore.store.record._parse cimport Found, Places, ends_in_file, parse_record
from cqstore.store.record._properties cimport read_properties

from cqstore.store.record import invalid_record
from cqstore.store.record.compression import decompress
from cqstore.store.record.described import described
from cqstore.store.record.host import Host
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.record.record_layout import RecordHead, RecordTail

_new = tuple.__new__

crc_prepare()

cdef bytes _last_wire = b""  # producers often send the same one again
cdef object _last_host = None


cdef object _host_at(const uint8_t *wire, Py_ssize_t size):
    global _last_wire, _last_host
    if (
        _last_host is None or PyBytes_GET_SIZE(_last_wire) != size
        or memcmp(PyBytes_AS_STRING(_last_wire), wire, size) != 0
    ):
        made = PyBytes_FromStringAndSize(<const char *> wire, size)
        _last_host = Host(made)
        _last_wire = made
    return _last_host


cdef inline bint _is_read(StoredMessage message) except -1:
    """Return whether the bytes just read are those of the log; False: read the record again.

    Called after each read. Raises the error that prevents reading the record, if the log's file was
    truncated or a part of it cannot be read.
    """
    if not log_faults_seen() and ends_in_file(message.data, &message.places):
        return True
    return not message._replace()


# No reference cycle is possible, except through objects that a caller adds to the properties.
@cython.no_gc
@cython.freelist(64)
cdef class StoredMessage:
    """One record of the log. Fields are decoded on access; text, body and dict are kept.

    Keeps the buffer alive that it was created from (in a pull the mapped file); copy with
    ``bytes(message.record)`` to release it.
    """

    def __init__(self, record, phy_offset=None):
        """Read the record that fills ``record``; ``phy_offset`` is its position in the log.

        Raises:
            CorruptionError: lengths and size are inconsistent, or the magic code is invalid.
        """
        cdef BufferRef held
        if self.held is not None:  # other threads may be reading the buffer
            raise TypeError("the message has already been read")
        held = BufferRef(record)
        self._topic = self._body = self._properties = None
        if not self._find(held, record):
            again = again_if_lost(<const uint8_t *> held.buffer.buf, held.buffer.len)
            if again is None or not self._find(BufferRef(again), again):
                invalid_record.refuse_record(record if again is None else again, phy_offset)

    cdef bint _find(self, BufferRef held, record) except -1:
        """Take the record if it is valid."""
        cdef const uint8_t *data = <const uint8_t *> held.buffer.buf
        if not parse_record(data, held.buffer.len, &self.places):
            self.places.size = 0
            return False
        self.held, self.data, self._record = held, data, record
        return True

    cdef const uint8_t *_start(self) except NULL:
        if self.places.size == 0:
            raise ValueError("the message has not been read")
        return self.data

    cdef bint _replace(self) except -1:
        """Read the record by a system call if its map is not valid; return whether it did."""
        cdef Places places
        again = again_if_lost(self.data, self.places.size)
        if again is None:
            return False
        cdef BufferRef held = BufferRef(again)
        if not parse_record(<const uint8_t *> held.buffer.buf, held.buffer.len, &places):
            invalid_record.refuse_record(again)
        self.former = self.held
        self.held, self.data, self._record = held, <const uint8_t *> held.buffer.buf, again
        self.places = places
        self._topic = self._body = self._properties = None
        return True

    def __repr__(self):
        return described(self)

    def __reduce__(self):
        return type(self), (bytes(self.record),)  # a view is valid in this process only

    @property
    def record(self):
        """The record's bytes in the log: the buffer it was created from, or a view of the log."""
        cdef const uint8_t *data = self._start()
        cdef Py_ssize_t at
        if not _is_read(self):
            return self._record
        if self._record is None:
            at = data - <const uint8_t *> self.held.buffer.buf
            self._record = self.held.slice(at, at + self.places.size)
        return self._record

    # ---- numbers

    @property
    def head(self):
        """The first fixed part of the record."""
        cdef const uint8_t *data = self._start()
        found = _new(RecordHead, (
            load32(data), load32(data + AT_MAGIC), load32(data + AT_CRC),
            load32(data + AT_QUEUE_ID), load32(data + AT_FLAG), load64(data + AT_QUEUE_OFFSET),
            load64(data + AT_PHY_OFFSET), load32(data + AT_SYS_FLAG), load64(data + AT_BORN),
        ))
        return found if _is_read(self) else self.head

    @property
    def tail(self):
        """The fixed part between the store host and the body."""
        cdef const uint8_t *data = self._start() + self.places.body - TAIL_BYTES
        found = _new(RecordTail, (
            load32(data), load64(data + AT_PREPARED_OF_TAIL), load32(data + AT_BODY_SIZE_OF_TAIL),
        ))
        return found if _is_read(self) else self.tail

    @property
    def queue_id(self):
        """The queue id."""
        cdef int32_t found = load32(self._start() + AT_QUEUE_ID)
        return found if _is_read(self) else self.queue_id

    @property
    def queue_offset(self):
        """The queue offset in units; 0 if the record is not queued."""
        cdef int64_t found = load64(self._start() + AT_QUEUE_OFFSET)
        return found if _is_read(self) else self.queue_offset

    @property
    def phy_offset(self):
        """The phy offset of the record, as stored in the record."""
        cdef int64_t found = load64(self._start() + AT_PHY_OFFSET)
        return found if _is_read(self) else self.phy_offset

    @property
    def sys_flag(self):
        """The flag bits as stored."""
        cdef int32_t found = load32(self._start() + AT_SYS_FLAG)
        return found if _is_read(self) else self.sys_flag

    @property
    def is_passed_over(self):
        """Whether this record is a filler that replaces a damaged record, and not a message."""
        cdef int32_t found = load32(self._start() + AT_SYS_FLAG)
        return found & PASSED_OVER != 0 if _is_read(self) else self.is_passed_over

    @property
    def size(self):
        """The size of the whole record in bytes."""
        self._start()
        return self.places.size

    @property
    def store_timestamp(self):
        """The time of the append to the log, in ms."""
        cdef int64_t found = load64(self._start() + self.places.stored)
        return found if _is_read(self) else self.store_timestamp

    # ---- variable parts

    @property
    def topic(self):
        """The topic.

        Raises:
            CorruptionError: the topic is not valid UTF-8.
        """
        cdef const uint8_t *data = self._start()
        if self._topic is None:
            try:
                topic = PyUnicode_DecodeUTF8(
                    <const char *> data + self.places.topic,
                    self.places.topic_end - self.places.topic, NULL,
                )
            except UnicodeDecodeError:
                record = self.record
                topic = bytes(record[self.places.topic : self.places.topic_end])
                return invalid_record.decode_topic(topic, self.phy_offset)
            if not _is_read(self):
                return self.topic
            self._topic = topic
        return self._topic

    @property
    def stored_body(self):
        """The body as stored in the log, possibly compressed: a view, no copy."""
        return self.record[self.places.body : self.places.body + self.places.body_size]

    @property
    def body(self):
        """The body, decompressed.

        Raises:
            CorruptionError: the body cannot be decompressed.
            UnsupportedFormatError: the compression type is unknown.
        """
        cdef const uint8_t *data = self._start()
        cdef int32_t flag = load32(data + AT_SYS_FLAG)
        if self._body is None:
            stored = PyBytes_FromStringAndSize(
                <const char *> data + self.places.body, self.places.body_size
            )
            if not _is_read(self):
                return self.body
            if flag & COMPRESSED:
                stored = decompress(stored, flag, self.phy_offset)
            self._body = stored
        return self._body

    @property
    def properties_bytes(self):
        """The properties as stored."""
        cdef const uint8_t *data = self._start()
        found = PyBytes_FromStringAndSize(
            <const char *> data + self.places.properties,
            self.places.size - self.places.properties,
        )
        return found if _is_read(self) else self.properties_bytes

    @property
    def properties(self):
        """The properties as a dict."""
        cdef const uint8_t *data = self._start()
        if self._properties is None:
            properties = read_properties(
                <const char *> data + self.places.properties,
                self.places.size - self.places.properties,
            )
            if not _is_read(self):
                return self.properties
            self._properties = properties
        return self._properties

    @property
    def born_host(self):
        """The producer's address."""
        cdef const uint8_t *data = self._start()
        found = _host_at(data + HEAD_BYTES, self.places.stored - HEAD_BYTES)
        return found if _is_read(self) else self.born_host

    @property
    def store_host(self):
        """The broker's address."""
        cdef const uint8_t *data = self._start()
        cdef int32_t at = self.places.stored + STAMP_BYTES
        found = _host_at(data + at, self.places.body - TAIL_BYTES - at)
        return found if _is_read(self) else self.store_host

    @property
    def message_id(self):
        """The offset message id: store host, port and phy offset in hex."""
        return encode_message_id(self.store_host, self.phy_offset)

    # ---- checks

    def check_body(self):
        """Check the body's CRC.

        Raises:
            ChecksumError: the CRC differs. An empty body has no CRC to check.
        """
        cdef const uint8_t *data = self._start()
        cdef uint32_t crc
        if self.places.body_size:
            with nogil:
                crc = crc_of(<const char *> data + self.places.body, self.places.body_size)
            if <int32_t> (crc & 0x7FFFFFFF) != load32(data + AT_CRC):
                invalid_record.check_body_crc(
                    self.stored_body, self.head.body_crc, self.phy_offset
                )

    def check_property_crc(self):
        """Check the CRC over the whole record that ``enabledAppendPropCRC`` appends.

        Raises:
            ChecksumError: the CRC is missing or differs.
        """
        invalid_record.check_property_crc(self.record, self.phy_offset)


cdef list messages_of(list files, const Found *found, Py_ssize_t count):
    """Return the messages of records in ``files``, of ``BufferRef``; ``None``: one is invalid.

    In this module, not next to pulls: creating a message is then no call across modules.
    """
    cdef Py_ssize_t at
    cdef StoredMessage message
    cdef list made = []
    for at in range(count):
        fetch_ahead(found[at].data + found[at].size - 1)
        fetch_ahead(found[at].data + HEAD_BYTES + HOST_V4 + STAMP_BYTES + HOST_V4)
    for at in range(count):
        message = StoredMessage.__new__(StoredMessage)
        message.data = found[at].data
        if not parse_record(message.data, found[at].size, &message.places):
            message.places.size = 0
            return None
        message.held = files[found[at].file]
        made.append(message)
    return made
