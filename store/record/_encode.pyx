# cython: language_level=3, boundscheck=False, wraparound=False
"""FastEncoder: checks whether a message is well-formed, and locates its parts.

Anything else than a plain message is declined, and the slow path in Python decides what is valid.
If a scratch is held (``is_held``), it keeps references to everything that its pointers lead to, so
other threads may run before the record is written. Otherwise the caller keeps the GIL until then
and no garbage collection can start: the encoder creates no object that the collector tracks, except
for the exception after which a message is declined.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject, Py_TYPE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t
from libc.string cimport memchr, memcmp

from cqstore.store.core._bytes cimport load32, load_u16
from cqstore.store.core._crc32 cimport crc_of, crc_of_by_table, crc_prepare
from cqstore.store.core._layout cimport *
from cqstore.store.core._record cimport is_ascii, put_bytes, whole_number
from cqstore.store.record._host cimport HostWire
from cqstore.store.record._message cimport Message
from cqstore.store.record._properties cimport (
    MAX_NAMES, NAME_END, VALUE_END, Property, decode_text, is_named, is_ordinary, next_property,
    read_properties,
)
from cqstore.store.record._scratch cimport Encoded, Scratch, is_queued

crc_prepare()


def crc32(bytes data not None, *, bint folded=True):
    """Return the CRC-32 of ``data`` as a put computes it; not ``folded``: with tables only."""
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    return crc_of(start, size) if folded else crc_of_by_table(start, size)


cdef struct BatchedMessage:
    # One message of a client batch.
    const char *body
    const char *properties
    Py_ssize_t body_size, properties_size
    int64_t flag


cdef const char *next_batched(const char *at, const char *end, BatchedMessage *found) noexcept:
    """Find the message at ``at``; return where the next one starts, ``NULL``: invalid lengths."""
    cdef int64_t size, rest
    if end - at < BATCHED_BYTES + 2:
        return NULL
    size, found.body_size = load32(at), load32(at + AT_BODY_SIZE_OF_BATCHED)
    rest = size - BATCHED_BYTES - 2 - found.body_size
    if size > end - at or found.body_size < 0 or rest < 0:
        return NULL
    found.flag, found.body = load32(at + AT_FLAG_OF_BATCHED), at + BATCHED_BYTES
    found.properties, found.properties_size = found.body + found.body_size + 2, rest
    return at + size if load_u16(found.properties - 2) == rest else NULL


def split_client_batch(bytes data not None):
    """Return flag, body and properties of each message, and the bytes before invalid lengths."""
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef const char *at = start
    cdef const char *end = start + PyBytes_GET_SIZE(data)
    cdef const char *after
    cdef BatchedMessage found
    cdef list messages = []
    while at < end:
        after = next_batched(at, end, &found)
        if after == NULL:
            break
        messages.append((
            found.flag, found.body[:found.body_size],
            read_properties(found.properties, found.properties_size),
        ))
        at = after
    return messages, at - start


cdef Py_ssize_t batched(object batch) noexcept:
    """Return the number of messages in a client batch; -1: its lengths are invalid."""
    if type(batch) is not Message or not PyBytes_CheckExact((<Message> batch).body):
        return -1
    cdef const char *at = PyBytes_AS_STRING((<Message> batch).body)
    cdef const char *end = at + PyBytes_GET_SIZE((<Message> batch).body)
    cdef Py_ssize_t count = 0
    cdef BatchedMessage found
    while at < end:
        at = next_batched(at, end, &found)
        if at == NULL:
            return -1
        count += 1
    return count


cdef class FastEncoder:
    """Encodes messages of one store, except for their positions. Any thread."""

    @cython.final
    cdef bint encode(self, PyObject *given, Scratch scratch, int64_t now) except -1:
        """Encode an object of any kind; return whether it is a plain message."""
        if type(<object> given) is not Message:
            return False
        cdef Encoded *entry = &scratch.entries[scratch.count - 1]
        if not self._find_topic(entry, <PyObject *> (<Message> given).topic):
            return False
        return self.encode_rest(<Message> given, entry, scratch, now) and (
            self.find_queue(entry, scratch)
        )

    @cython.final
    cdef bint encode_rest(
        self, Message message, Encoded *entry, Scratch scratch, int64_t now
    ) except -1:
        """Encode all but the topic, and the fields that depend on the size and the queue."""
        return (
            self._encode_head(message, entry, now)
            and (scratch.is_held or not entry.sys_flag & INNER_BATCH)  # else Python puts it
            and self._encode_body(entry, <PyObject *> message.body, scratch)
            and whole_number(<PyObject *> message.flag, INT32_MIN, INT32_MAX, &entry.flag)
            and whole_number(
                <PyObject *> message.prepared_transaction_offset, INT64_MIN, INT64_MAX,
                &entry.prepared,
            )
            and self._encode_properties(entry, <PyObject *> message.properties, scratch)
        )

    @cython.final
    cdef bint _encode_head(self, Message message, Encoded *entry, int64_t now) except -1:
        """Encode the fields that all messages of a client batch share, except for the topic."""
        if not (
            whole_number(<PyObject *> message.queue_id, 0, INT32_MAX, &entry.queue_id)
            and whole_number(<PyObject *> message.sys_flag, INT32_MIN, INT32_MAX, &entry.sys_flag)
            and not entry.sys_flag & PASSED_OVER
            and whole_number(<PyObject *> message.born_timestamp, INT64_MIN, INT64_MAX, &entry.born)
            and whole_number(
                <PyObject *> message.reconsume_times, INT32_MIN, INT32_MAX, &entry.reconsumed
            )
            and self._encode_host(
                &entry.born_host, &entry.born_size, <PyObject *> message.born_host
            )
            and self._encode_host(
                &entry.store_host, &entry.store_size, <PyObject *> message.store_host
            )
        ):
            return False
        if (
            entry.sys_flag & (BORN_V6 | STORE_V6)
            or entry.born_size + entry.store_size != 2 * HOST_V4
        ):
            _set_host_bits(entry)
        entry.born = entry.born or now
        entry.stored_at = <PyObject *> message.store_host
        return True

    @cython.final
    cdef bint find_queue(self, Encoded *entry, Scratch scratch) except -1:
        """Compute the size and find the queue; return whether the message can be appended now."""
        entry.size = (
            FIXED_BYTES - 2 * HOST_V4 + entry.born_size + entry.store_size
            + entry.body_size + entry.topic_size + 2 + entry.properties_size
        )
        if entry.size > INT32_MAX:
            return False
        scratch.total += entry.size
        if scratch.total > scratch.max_total:
            return False
        entry.queue = self._known.queue(entry.key, entry.queue_id)
        entry.key = entry.queue.key
        scratch.keys.append(<object> entry.key)
        if scratch.is_held:
            return True  # position and checksum are computed later
        if is_queued(entry) and PyDict_GetItemWithError(self._next, <object> entry.key) == NULL:
            return False
        # Last, because it takes longest: messages that are not eligible were declined before.
        entry.crc = crc_of(entry.body, entry.body_size)
        return True

    @cython.final
    cdef bint _find_topic(self, Encoded *entry, PyObject *topic) except -1:
        if type(<object> topic) is not str:
            return False
        cdef PyObject *known = PyDict_GetItemWithError(self._topics, <object> topic)
        return known != NULL and self.take_topic(entry, <tuple> <object> known)

    @cython.final
    cdef bint take_topic(self, Encoded *entry, tuple learnt) except -1:
        magic, name, text = learnt
        if not whole_number(<PyObject *> magic, INT32_MIN, INT32_MAX, &entry.magic):
            return False
        entry.topic, entry.topic_size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        entry.key = <PyObject *> text
        entry.is_scheduled = text == self._scheduled
        return True

    @cython.final
    cdef bint _encode_body(self, Encoded *entry, PyObject *body, Scratch scratch) except -1:
        if not PyBytes_CheckExact(<object> body):
            return False
        entry.body, entry.body_size = (
            PyBytes_AS_STRING(<object> body), PyBytes_GET_SIZE(<object> body)
        )
        return entry.body_size <= scratch.max_body

    @cython.final
    cdef bint _encode_host(
        self, const char **wire, Py_ssize_t *size, PyObject *host
    ) except -1:
        if <PyObject *> Py_TYPE(<object> host) != <PyObject *> self._host:
            return False
        cdef PyObject *found = <PyObject *> (<HostWire> host).wire
        if not PyBytes_CheckExact(<object> found):
            return False
        wire[0], size[0] = PyBytes_AS_STRING(<object> found), PyBytes_GET_SIZE(<object> found)
        return size[0] == HOST_V4 or size[0] == HOST_V6

    @cython.final
    cdef bint _encode_properties(
        self, Encoded *entry, PyObject *properties, Scratch scratch
    ) except -1:
        """Write the properties into the scratch; return whether all of them are plain."""
        cdef Py_ssize_t at = 0, name_size = 0, size = 0
        cdef PyObject *name = NULL
        cdef PyObject *value = NULL
        cdef const char *name_text = NULL
        cdef const char *text = NULL
        cdef char *out
        cdef bint may_request = not scratch.is_held  # otherwise Python has decided
        cdef bint may_delay = self._reads_delay or entry.is_scheduled
        if not PyDict_CheckExact(<object> properties):
            return False
        _begin_properties(entry, scratch)
        while PyDict_Next(<object> properties, &at, &name, &value):
            if not is_ordinary(<object> name, &name_text, &name_size):
                return False
            if not is_ordinary(<object> value, &text, &size):
                return False
            if self._seal is not None and _is_seal(self._seal, name_text, name_size):
                continue
            if scratch.used + name_size + size + 2 - entry.properties_at > MAX_PROPERTIES:
                return False
            if may_request and _is_request(name_text, name_size, may_delay):
                return False
            _pick_dispatch_property(entry, name_text, name_size, value)
            out = put_bytes(scratch.take(name_size + size + 2), name_text, name_size)
            out[0] = NAME_END
            out = put_bytes(out + 1, text, size)
            out[0] = VALUE_END
            scratch.used += name_size + size + 2
        return self._end_properties(entry, scratch)

    @cython.final
    cdef bint _end_properties(self, Encoded *entry, Scratch scratch) except -1:
        """Add the checksum property; return whether the properties fit."""
        if self._seal is not None:
            put_bytes(
                scratch.take(CRC_PROPERTY_BYTES), PyBytes_AS_STRING(self._seal), CRC_PROPERTY_BYTES
            )
            scratch.used += CRC_PROPERTY_BYTES
        entry.properties_size = scratch.used - entry.properties_at
        entry.tags_code = self._known.tag(entry.tags).code if entry.tags != NULL else 0
        return entry.properties_size <= MAX_PROPERTIES

    # ---- client batches

    @cython.final
    cdef bint encode_batch(self, object given, Scratch scratch, int64_t now) except -1:
        """Encode the messages in a batch; return whether all are plain, with valid lengths."""
        if type(given) is not Message:
            return False
        cdef Message batch = <Message> given
        cdef Encoded common
        cdef Encoded *entry
        scratch.begin(1)
        if not (
            self._find_topic(&common, <PyObject *> batch.topic)
            and self._encode_head(batch, &common, now)
            and not common.sys_flag & INNER_BATCH
        ):
            return False
        data = batch.body
        if not PyBytes_CheckExact(data):
            return False
        cdef const char *at = PyBytes_AS_STRING(data)
        cdef const char *end = at + PyBytes_GET_SIZE(data)
        cdef BatchedMessage found
        while at < end:
            at = next_batched(at, end, &found)
            if at == NULL:
                return False
            entry = scratch.more()
            entry[0] = common
            entry.flag, entry.prepared = found.flag, 0
            entry.body, entry.body_size = found.body, found.body_size
            if not (
                found.body_size <= scratch.max_body
                and self._take_properties(
                    entry, found.properties, found.properties_size, scratch
                )
                and self.find_queue(entry, scratch)
            ):
                return False
        return True

    @cython.final
    cdef bint _take_properties(
        self, Encoded *entry, const char *data, Py_ssize_t size, Scratch scratch
    ) except -1:
        """Copy properties in stored form, if encoding them would give the same bytes."""
        cdef const char *end = data + size
        cdef const char *names[MAX_NAMES]
        cdef Py_ssize_t sizes[MAX_NAMES]
        cdef const char *segment
        cdef Property found
        cdef Py_ssize_t count = 0, at
        cdef bint may_delay = self._reads_delay or entry.is_scheduled
        _begin_properties(entry, scratch)
        if size > MAX_PROPERTIES or not (is_ascii(data, size) or _is_utf8(data, size)):
            return False
        found.after = data
        while found.after < end:
            segment = found.after
            if not next_property(&found, end) or found.name != segment or found.after > end:
                return False
            if memchr(found.value, NAME_END, found.value_size) != NULL or count == MAX_NAMES:
                return False
            if _is_request(found.name, found.name_size, may_delay) or (
                self._seal is not None and _is_seal(self._seal, found.name, found.name_size)
            ):
                return False
            for at in range(count):
                if is_named(&found, names[at], sizes[at]):
                    return False
            names[count], sizes[count] = found.name, found.name_size
            count += 1
            if found.name_size in (4, 5, 8):
                text = decode_text(found.value, found.value_size)
                scratch.keys.append(text)
                _pick_dispatch_property(entry, found.name, found.name_size, <PyObject *> text)
        put_bytes(scratch.take(size), data, size)
        scratch.used += size
        return self._end_properties(entry, scratch)


cdef inline bint _is_seal(bytes seal, const char *name, Py_ssize_t size) noexcept:
    return size == CRC_PROPERTY_BYTES - CRC_DIGITS - 2 and (
        memcmp(name, PyBytes_AS_STRING(seal), size) == 0
    )


cdef inline void _begin_properties(Encoded *entry, Scratch scratch) noexcept:
    entry.tags = entry.uniq_key = entry.words = entry.delay = NULL
    entry.properties_at = scratch.used


cdef void _set_host_bits(Encoded *entry) noexcept:
    """Set the host bits from the hosts; the bits that the caller set are ignored."""
    entry.sys_flag &= ~<int64_t> (BORN_V6 | STORE_V6)
    if entry.born_size == HOST_V6:
        entry.sys_flag |= BORN_V6
    if entry.store_size == HOST_V6:
        entry.sys_flag |= STORE_V6


cdef bint _is_utf8(const char *data, Py_ssize_t size) except -1:
    try:
        PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline bint _is_request(const char *name, Py_ssize_t size, bint may_delay) noexcept:
    """Return whether a property with this name may request more than storing the message.

    Python decides whether it does: ``ScheduleMessageHook`` and ``put_checks``.
    """
    return size >= 5 and (
        memcmp(name, b"INNER", 5) == 0
        or (may_delay and (memcmp(name, b"DELAY", 5) == 0 or memcmp(name, b"TIMER", 5) == 0))
    )


cdef void _pick_dispatch_property(
    Encoded *entry, const char *name, Py_ssize_t size, PyObject *value
) noexcept:
    """Keep the value if it is a property that dispatch needs."""
    if size == 4 and memcmp(name, b"TAGS", 4) == 0:
        entry.tags = value
    elif size == 4 and memcmp(name, b"KEYS", 4) == 0:
        entry.words = value
    elif size == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
        entry.uniq_key = value
    elif size == 5 and memcmp(name, b"DELAY", 5) == 0:
        entry.delay = value
