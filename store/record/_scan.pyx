# cython: language_level=3, boundscheck=False, wraparound=False
"""BlockScan: the records of a block of log bytes, one after the other.

No size in the input is trusted: every read is bounded by the object that it reads. Anything that is
not plain is handed to the slow path in Python, which decides what is valid.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._crc32 cimport crc_of, crc_prepare
from cqstore.store.core._layout cimport (
    AT_CRC, AT_PHY_OFFSET, AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_SYS_FLAG, BLANK_BYTES, FIXED_BYTES,
)
from cqstore.store.record._parse cimport Places, parse_record

cdef enum:
    LONG_BODY = 1 << 16  # its checksum is computed without the GIL

_new = tuple.__new__

crc_prepare()


cdef class BlockScan:
    """See ``cqstore.store.record.scan.scan_block``, the slow path for all other records."""

    def __init__(
        self, made, bytes data not None, int64_t phy_offset, int64_t left, rules, topics,
        check_one, int64_t max_queue_offset,
    ):
        self._made, self._data, self._phy_offset, self._left = made, data, phy_offset, left
        self._behind = phy_offset
        self._last_end = min(<int64_t> len(data), left - BLANK_BYTES)
        self._rules, self._check_crc, self._fast = rules, rules.check_crc, not rules.property_crc
        self._topics, self._learn, self._check_one = topics, topics.learn_name, check_one
        self._max_queue_offset = max_queue_offset
        self._name = b""

    def __iter__(self):
        return self

    @property
    def behind(self):
        return self._behind

    def refusing(self, look):
        """See ``RecordScan.refusing``."""
        self._look = look
        return self

    def __next__(self):
        cdef int stepped = self.step()
        if stepped == AT_END:
            raise StopIteration
        record = self.record() if stepped == ORDINARY else self.slow_step()
        if record is None:
            raise StopIteration
        return record

    cdef object record(self):
        """Return the plain record that was read last."""
        cdef Scanned *found = &self.found
        return _new(self._made, (
            found.phy_offset, found.size, <object> found.topic, found.queue_id,
            found.queue_offset, found.flags, found.timestamp,
            PyBytes_FromStringAndSize(found.properties, found.properties_size),
        ))

    cdef int step(self) except -1:
        """Advance past the next record if it is plain; ``IRREGULAR``: call ``slow_step``."""
        cdef Scanned found
        cdef bytes data = self._data  # other threads run during a long checksum
        if self._position + FIXED_BYTES >= len(data):
            return AT_END
        if not self._is_ordinary(PyBytes_AS_STRING(data) + self._position, &found):
            return IRREGULAR
        if self._look is not None and (
            memchr(found.properties, 0, found.properties_size) != NULL
            or memchr(PyBytes_AS_STRING(self._name), 0, len(self._name)) != NULL
        ):
            return IRREGULAR
        self.found, self._found_topic = found, self._topic
        self._position += found.size
        self._behind = self._phy_offset + self._position
        return ORDINARY

    cdef object slow_step(self):
        """Check a record on the slow path, and advance past it; ``None``: there is none."""
        cdef int64_t position = self._position
        found = self._check_one(
            self._data, position, self._left - position, self._phy_offset + position, self._rules
        )
        if found is None:
            self._position = len(self._data)
            return None
        if self._look is not None and (b"\0" in found.properties or "\0" in found.topic):
            self._look(found)
        self._position = position + <int64_t> found.size
        self._behind = self._phy_offset + self._position
        return found

    cdef bint _is_ordinary(self, const char *record, Scanned *found) except -1:
        """Read the record at ``record``; return whether it is plain."""
        cdef const uint8_t *data = <const uint8_t *> record
        cdef Places places
        cdef int64_t size = load32(data), phy_offset = self._phy_offset + self._position, offset
        if not (
            self._fast and self._position + size <= self._last_end
            and parse_record(data, size, &places)
            and load64(data + AT_PHY_OFFSET) == phy_offset
        ):
            return False
        offset = load64(data + AT_QUEUE_OFFSET)
        if not (
            0 <= offset < self._max_queue_offset
            and self._name_topic(record + places.topic, places.topic_end - places.topic)
            and self._is_sound(record, places.body, places.body_size)
        ):
            return False
        found.phy_offset, found.size, found.topic = phy_offset, size, <PyObject *> self._topic
        found.queue_id, found.queue_offset = load32(data + AT_QUEUE_ID), offset
        found.flags, found.timestamp = load32(data + AT_SYS_FLAG), load64(data + places.stored)
        found.properties, found.properties_size = record + places.properties, size - places.properties
        return True

    cdef bint _name_topic(self, const char *name, Py_ssize_t size) except -1:
        """Find the topic with this name; return whether the name is valid."""
        cdef PyObject *known
        if size != len(self._name) or memcmp(name, PyBytes_AS_STRING(self._name), size):
            encoded = PyBytes_FromStringAndSize(name, size)
            known = PyDict_GetItemWithError(self._topics, encoded)
            topic = <object> known if known != NULL else self._learn(encoded)
            if not topic:
                return False
            self._topic, self._name = topic, encoded
        return self._topic is not None

    cdef bint _is_sound(self, const char *record, int64_t body, int64_t size) except -1:
        cdef uint32_t crc
        if not self._check_crc or not size:
            return True
        if size < LONG_BODY:
            crc = crc_of(record + body, size)
        else:
            with nogil:
                crc = crc_of(record + body, size)
        return <int64_t> (crc & 0x7FFFFFFF) == load32(<const uint8_t *> record + AT_CRC)
