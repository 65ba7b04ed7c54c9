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

from cqstore.store.core._crc32 cimport crc_of, crc_of_by_table, crc_prepare
from cqstore.store.core._layout cimport *
from cqstore.store.core._record cimport get16, get32, is_ascii, put_bytes, whole_number
from cqstore.store.record._host cimport HostWire
from cqstore.store.record._message cimport Message
from cqstore.store.record._properties cimport (
    MAX_NAMES, NAME_END, VALUE_END, PyUnicode_AsUTF8AndSize, decode_text, is_ordinary,
)
from cqstore.store.record._scratch cimport Encoded, Scratch, is_queued

cdef enum:
    MAX_DIGITS = 9  # of a delay level
    # What properties may request, by their names.
    LATER = 1 << 0  # delivery at a later time, by a delay level
    LATER_BY_TIMER = 1 << 1
    TIMER_IS_OVER = 1 << 2
    LIGHT_QUEUES = 1 << 3
    LIGHT_OFFSETS = 1 << 4
    INNER_COUNT = 1 << 5

crc_prepare()


def crc32(bytes data not None, *, bint folded=True):
    """Return the CRC-32 of ``data`` as a put computes it; not ``folded``: with tables only."""
    cdef const char *start = PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    return crc_of(start, size) if folded else crc_of_by_table(start, size)


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
            and not entry.sys_flag & (INNER_BATCH | PASSED_OVER)
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
            if _is_irregular(name_text, name_size):
                entry.requests |= _requests_of(name_text, name_size, text, size)
            _pick_dispatch_property(entry, name_text, name_size, value)
            out = put_bytes(scratch.take(name_size + size + 2), name_text, name_size)
            out[0] = NAME_END
            out = put_bytes(out + 1, text, size)
            out[0] = VALUE_END
            scratch.used += name_size + size + 2
        return self._end_properties(entry, scratch)

    @cython.final
    cdef bint _end_properties(self, Encoded *entry, Scratch scratch) except -1:
        """Add the checksum property; return whether the properties fit and request nothing else."""
        if self._seal is not None:
            put_bytes(
                scratch.take(CRC_PROPERTY_BYTES), PyBytes_AS_STRING(self._seal), CRC_PROPERTY_BYTES
            )
            scratch.used += CRC_PROPERTY_BYTES
        entry.properties_size = scratch.used - entry.properties_at
        if entry.properties_size > MAX_PROPERTIES:
            return False
        entry.tags_code = self._known.tag(entry.tags).code if entry.tags != NULL else 0
        return not (entry.requests or entry.is_scheduled) or self._may_be_put(entry, scratch)

    @cython.final
    cdef bint _may_be_put(self, Encoded *entry, Scratch scratch) except -1:
        """Return whether the properties of a message request nothing but to store it."""
        cdef Py_ssize_t size = 0
        if entry.is_scheduled and entry.delay != NULL:
            if not scratch.is_held:  # its unit has a due time in place of the tags code
                return False
            text = PyUnicode_AsUTF8AndSize(<object> entry.delay, &size)
            if not _is_level(text, size):
                return False
        if scratch.is_held or not entry.requests:
            return True  # checked before
        if entry.requests & INNER_COUNT:
            return False
        if not is_queued(entry):
            return True
        if entry.requests & LIGHT_QUEUES:
            if entry.requests & LIGHT_OFFSETS or (self._has_light and not scratch.is_batch):
                return False
        if not self._refuses_delay or entry.is_scheduled or <object> entry.key == self._timer:
            return True
        if entry.requests & LATER:
            return False
        return not entry.requests & LATER_BY_TIMER or bool(entry.requests & TIMER_IS_OVER)

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
        ):
            return False
        data = batch.body
        if not PyBytes_CheckExact(data):
            return False
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef int64_t at = 0, end = PyBytes_GET_SIZE(data), size, body_size, properties_size
        while at < end:
            if end - at < BATCHED_BYTES + 2:
                return False
            size, body_size = get32(start + at), get32(start + at + AT_BODY_SIZE_OF_BATCHED)
            if size > end - at or body_size < 0 or body_size > size - BATCHED_BYTES - 2:
                return False
            properties_size = size - BATCHED_BYTES - body_size - 2
            if get16(start + at + BATCHED_BYTES + body_size) != properties_size:
                return False
            entry = scratch.more()
            entry[0] = common
            entry.flag, entry.prepared = get32(start + at + AT_FLAG_OF_BATCHED), 0
            entry.body, entry.body_size = start + at + BATCHED_BYTES, body_size
            if not (
                body_size <= scratch.max_body
                and self._take_properties(
                    entry, start + at + size - properties_size, properties_size, scratch
                )
                and self.find_queue(entry, scratch)
            ):
                return False
            at += size
        return True

    @cython.final
    cdef bint _take_properties(
        self, Encoded *entry, const char *data, Py_ssize_t size, Scratch scratch
    ) except -1:
        """Copy properties in stored form, if encoding them would give the same bytes."""
        cdef const char *end = data + size
        cdef const char *names[MAX_NAMES]
        cdef Py_ssize_t sizes[MAX_NAMES]
        cdef const char *segment = data
        cdef const char *value
        cdef const char *value_end
        cdef Py_ssize_t count = 0, at, name_size
        _begin_properties(entry, scratch)
        if size > MAX_PROPERTIES or not (is_ascii(data, size) or _is_utf8(data, size)):
            return False
        while segment < end:
            value_end = <const char *> memchr(segment, VALUE_END, end - segment)
            if value_end == NULL:
                return False
            value = <const char *> memchr(segment, NAME_END, value_end - segment)
            if value == NULL or value == segment or value + 1 == value_end:
                return False
            name_size, value = value - segment, value + 1
            if memchr(value, NAME_END, value_end - value) != NULL or count == MAX_NAMES:
                return False
            if _is_irregular(segment, name_size):
                entry.requests |= _requests_of(segment, name_size, value, value_end - value)
            elif self._seal is not None and _is_seal(self._seal, segment, name_size):
                return False
            for at in range(count):
                if sizes[at] == name_size and memcmp(names[at], segment, name_size) == 0:
                    return False
            names[count], sizes[count] = segment, name_size
            count += 1
            if name_size in (4, 5, 8):
                text = decode_text(value, value_end)
                scratch.keys.append(text)
                _pick_dispatch_property(entry, segment, name_size, <PyObject *> text)
            segment = value_end + 1
        put_bytes(scratch.take(size), data, size)
        scratch.used += size
        return self._end_properties(entry, scratch)


cdef inline bint _is_seal(bytes seal, const char *name, Py_ssize_t size) noexcept:
    return size == CRC_PROPERTY_BYTES - CRC_DIGITS - 2 and (
        memcmp(name, PyBytes_AS_STRING(seal), size) == 0
    )


cdef inline void _begin_properties(Encoded *entry, Scratch scratch) noexcept:
    entry.tags = entry.uniq_key = entry.words = entry.delay = NULL
    entry.requests, entry.properties_at = 0, scratch.used


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


cdef inline bint _is_irregular(const char *name, Py_ssize_t size) noexcept:
    """Return whether a property with this name may request more than storing the message."""
    return size >= 5 and (
        memcmp(name, b"INNER", 5) == 0 or memcmp(name, b"DELAY", 5) == 0
        or memcmp(name, b"TIMER", 5) == 0
    )


cdef inline bint _is_named(
    const char *name, Py_ssize_t size, const char *other, Py_ssize_t other_size
) noexcept:
    return size == other_size and memcmp(name, other, size) == 0


cdef int _requests_of(
    const char *name, Py_ssize_t size, const char *value, Py_ssize_t value_size
) noexcept:
    """Return what a property with a special name requests; 0: nothing."""
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
    """Return whether Java parses a level of 0 or less; see ``delay_check``."""
    return _is_level(text, size) and (text[0] == c"-" or _is_zero(text, size))


cdef bint _is_level(const char *text, Py_ssize_t size) noexcept:
    """Return whether Java parses a number: up to nine digits, with an optional sign."""
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
