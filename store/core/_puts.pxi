# PlainPuts: the put of plain messages, from the message to its place, in one call.
#
# The call holds the interpreter's lock from its first look at the message to the last field that it
# sets, and runs no line of Python and no collection of garbage meanwhile. So no other thread, no
# signal's handler and no fork comes in between, and the append lock needs no taking: where nobody
# has it as the call begins, nobody can until it ends. Where anything is not plain, or not at hand,
# it returns ``None`` and has changed nothing.

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_SetItem
from cpython.object cimport Py_TYPE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdlib cimport free, realloc
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from time import time_ns  # the one that needs no call

cdef extern from "_record.h":
    Py_ssize_t slot_of(object type, const char *name)
    PyObject *in_slot(PyObject *object, Py_ssize_t offset)
    bint whole_number(PyObject *object, int64_t least, int64_t most, int64_t *found)
    char *put16(char *at, unsigned short value)
    char *put_bytes(char *at, const char *data, size_t size)
    void in_this_order()
    bint is_ascii(const char *data, size_t size)
    int64_t get16(const char *at)
    int64_t get32(const char *at) noexcept nogil

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    HOST = 8
    BATCHED = 20  # the head of a message in a client batch
    MOST_PROPERTIES = 0x7FFF
    MOST_BODY = 1 << 16  # a longer one is summed while others run
    MOST_AT_ONCE = 1 << 20  # bytes of records; likewise, and what they are looked at in stays
    ODD_FLAGS = 0x400000B4  # a half message, IPv6 hosts, an inner batch, passed over


include "_plain.pxi"


cdef class PlainPuts:
    """Puts plain messages into one store. Any thread; whoever appends otherwise has the lock."""

    cdef _Slots _slots
    cdef _Scratch _scratch
    cdef object _log, _pending, _section, _state, _locked, _clock
    cdef object _appended, _result, _ok, _topics, _scheduled
    cdef dict _next
    cdef Py_ssize_t _max_body, _file_size
    cdef bint _keys_wanted, _tags_wanted
    cdef _Columns _columns

    def __init__(
        self, *, log, pending, state, clock, topics, scheduled, classes, ok, tags_prefix,
        max_body, file_size, keys_wanted, tags_wanted,
    ):
        message, host, self._appended, self._result, queue_key = classes
        self._columns = _Columns(queue_key, tags_prefix)
        self._slots, self._scratch = _Slots(message, host), _Scratch()
        self._log, self._pending, self._state = log, pending, state
        self._section, self._locked = pending.appending, pending.lock.locked
        self._clock, self._ok = clock, ok
        self._topics, self._scheduled, self._next = topics, scheduled, pending.offsets.next
        self._max_body, self._file_size = min(max_body, <Py_ssize_t> MOST_BODY), file_size
        self._keys_wanted, self._tags_wanted = keys_wanted, tags_wanted

    def one(self, message):
        """Put a message; return its result, ``None`` if it has to go the long way."""
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        try:
            found = self._put((message,), now)
        finally:
            if collecting:
                PyGC_Enable()
        return None if found is None else (<list> found)[0]

    def several(self, messages):
        """Put all ``messages``, in order; return their results, ``None``: the long way for all."""
        cdef tuple held = tuple(messages)
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        try:
            return self._put(held, now)
        finally:
            if collecting:
                PyGC_Enable()

    def batch(self, batch):
        """Put all messages of a client batch that was checked as one message."""
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        try:
            if not self._look_into(<PyObject *> batch, self._scratch, now):
                return None
            return self._append_all(self._scratch, now)
        finally:
            if collecting:
                PyGC_Enable()

    cdef int64_t _now(self) except? -1:
        """Return the store time, ms. No line of Python: nobody appends behind it with an earlier one."""
        cdef timespec now
        asked = self._clock.time_ns
        if asked is time_ns and clock_gettime(CLOCK_REALTIME, &now) == 0:
            return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000
        return <int64_t> asked() // 1_000_000

    cdef list _put(self, tuple messages, int64_t now):
        cdef Py_ssize_t at, count = len(messages)
        cdef _Scratch scratch = self._scratch
        if count > MOST_AT_ONCE // FIXED:
            return None
        scratch.begin(count)
        for at in range(count):
            scratch.count = at + 1
            if not self._look(<PyObject *> PyTuple_GET_ITEM(messages, at), scratch, now):
                return None
        return self._append_all(scratch, now)

    cdef list _append_all(self, _Scratch scratch, int64_t now):
        """Append what was looked at, if there is room and nothing forbids it."""
        if not scratch.count or self._locked() or self._section.begun or self._state.unwritable:
            return None
        file = self._log.current
        if file is None or file is not self._log.prepared:
            return None
        cdef int64_t position = file.wrote_position
        if position < 0 or scratch.total + BLANK > self._file_size - position:
            return None
        target = file.heap
        if target is None:
            target = file.mapped
        if target is None:
            return None
        return self._append(scratch, now, file, position, target)

    # ---- looking

    cdef bint _look(self, PyObject *message, _Scratch scratch, int64_t now) except -1:
        """Look at a message; return whether it is plain."""
        cdef _Slots slots = self._slots
        cdef Plain *plain = &scratch.plain[scratch.count - 1]
        if not (
            self._look_at_head(message, plain, now)
            and self._look_at_body(plain, in_slot(message, slots.body))
            and whole_number(in_slot(message, slots.flag), INT32_MIN, INT32_MAX, &plain.flag)
            and whole_number(
                in_slot(message, slots.prepared), INT64_MIN, INT64_MAX, &plain.prepared
            )
            and self._look_at_properties(plain, in_slot(message, slots.properties), scratch)
        ):
            return False
        return self._look_at_queue(plain, scratch)

    cdef bint _look_at_head(self, PyObject *message, Plain *plain, int64_t now) except -1:
        """Look at what the messages of a client batch have in common."""
        cdef _Slots slots = self._slots
        if <PyObject *> Py_TYPE(<object> message) != <PyObject *> slots.message:
            return False
        if not (
            self._look_at_topic(plain, in_slot(message, slots.topic))
            and whole_number(in_slot(message, slots.queue_id), 0, INT32_MAX, &plain.queue_id)
            and whole_number(in_slot(message, slots.sys_flag), 0, INT32_MAX, &plain.sys_flag)
            and not plain.sys_flag & ODD_FLAGS
            and whole_number(in_slot(message, slots.born), INT64_MIN, INT64_MAX, &plain.born)
            and whole_number(
                in_slot(message, slots.reconsumed), INT32_MIN, INT32_MAX, &plain.reconsumed
            )
            and self._look_at_host(&plain.born_host, in_slot(message, slots.born_host))
            and self._look_at_host(&plain.store_host, in_slot(message, slots.store_host))
        ):
            return False
        plain.born = plain.born or now
        plain.stored_at = in_slot(message, slots.store_host)
        return True

    cdef bint _look_at_queue(self, Plain *plain, _Scratch scratch) except -1:
        plain.size = FIXED + plain.body_size + plain.topic_size + 2 + plain.properties_size
        scratch.total += plain.size
        if scratch.total > MOST_AT_ONCE:
            return False
        key = (<object> plain.key, plain.queue_id)
        scratch.keys.append(key)
        plain.key = <PyObject *> key
        return PyDict_GetItemWithError(self._next, key) != NULL

    cdef bint _look_at_topic(self, Plain *plain, PyObject *topic) except -1:
        if topic == NULL or type(<object> topic) is not str:
            return False
        cdef PyObject *known = PyDict_GetItemWithError(self._topics, <object> topic)
        if known == NULL:
            return False
        magic, name, text = <tuple> known
        if text == self._scheduled or not whole_number(<PyObject *> magic, INT32_MIN, INT32_MAX, &plain.magic):
            return False
        plain.topic, plain.topic_size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        plain.key = <PyObject *> text
        return True

    cdef bint _look_at_body(self, Plain *plain, PyObject *body) except -1:
        if body == NULL or not PyBytes_CheckExact(<object> body):
            return False
        return self._take_body(
            plain, PyBytes_AS_STRING(<object> body), PyBytes_GET_SIZE(<object> body)
        )

    cdef bint _take_body(self, Plain *plain, const char *body, Py_ssize_t size) noexcept:
        plain.body, plain.body_size = body, size
        if plain.body_size > self._max_body:
            return False
        plain.crc = crc_of(plain.body, plain.body_size) & 0x7FFFFFFF
        return True

    cdef bint _look_at_host(self, const char **wire, PyObject *host) except -1:
        if host == NULL or <PyObject *> Py_TYPE(<object> host) != <PyObject *> self._slots.host:
            return False
        cdef PyObject *found = in_slot(host, self._slots.wire)
        if found == NULL or not PyBytes_CheckExact(<object> found):
            return False
        wire[0] = PyBytes_AS_STRING(<object> found)
        return PyBytes_GET_SIZE(<object> found) == HOST

    cdef bint _look_at_properties(
        self, Plain *plain, PyObject *properties, _Scratch scratch
    ) except -1:
        """Write the properties where they wait; return whether there is nothing odd among them."""
        cdef Py_ssize_t at = 0, name_size = 0, size = 0
        cdef PyObject *name = NULL
        cdef PyObject *value = NULL
        cdef const char *name_text = NULL
        cdef const char *text = NULL
        cdef char *out
        if properties == NULL or not PyDict_CheckExact(<object> properties):
            return False
        plain.tags = plain.uniq_key = plain.words = NULL
        plain.properties_at = scratch.used
        while PyDict_Next(<object> properties, &at, &name, &value):
            if not _plain(<object> name, &name_text, &name_size):
                return False
            if not _plain(<object> value, &text, &size):
                return False
            if name_size >= 6 and memcmp(name_text, b"INNER_", 6) == 0:
                return False
            if scratch.used + name_size + size + 2 - plain.properties_at > MOST_PROPERTIES:
                return False
            _heed(plain, name_text, name_size, value)
            out = put_bytes(scratch.take(name_size + size + 2), name_text, name_size)
            out[0] = NAME_END
            out = put_bytes(out + 1, text, size)
            out[0] = VALUE_END
            scratch.used += name_size + size + 2
        plain.tags_code = _hash(<object> plain.tags) if plain.tags != NULL else 0
        plain.properties_size = scratch.used - plain.properties_at
        return True

    # ---- looking into a client batch

    cdef bint _look_into(self, PyObject *batch, _Scratch scratch, int64_t now) except -1:
        """Look at the messages in a batch; return whether all are plain, lengths and all."""
        cdef Plain common
        cdef Plain *plain
        scratch.begin(1)
        if not self._look_at_head(batch, &common, now):
            return False
        cdef PyObject *body = in_slot(batch, self._slots.body)
        if body == NULL or not PyBytes_CheckExact(<object> body):
            return False
        data = <object> body
        cdef const char *start = PyBytes_AS_STRING(data)
        cdef int64_t at = 0, end = PyBytes_GET_SIZE(data), size, body_size, properties_size
        while at < end:
            if end - at < BATCHED + 2:
                return False
            size, body_size = get32(start + at), get32(start + at + BATCHED - 4)
            if size > end - at or body_size < 0 or body_size > size - BATCHED - 2:
                return False
            properties_size = size - BATCHED - body_size - 2
            if get16(start + at + BATCHED + body_size) != properties_size:
                return False
            plain = scratch.more()
            plain[0] = common
            plain.flag, plain.prepared = get32(start + at + 12), 0
            if not (
                self._take_body(plain, start + at + BATCHED, body_size)
                and self._take_properties(
                    plain, start + at + size - properties_size, properties_size, scratch
                )
                and self._look_at_queue(plain, scratch)
            ):
                return False
            at += size
        return True

    cdef bint _take_properties(
        self, Plain *plain, const char *data, Py_ssize_t size, _Scratch scratch
    ) except -1:
        """Take properties as they are stored, if they would be written so; ASCII alone is."""
        cdef const char *end = data + size
        cdef const char *names[MOST_NAMES]
        cdef Py_ssize_t sizes[MOST_NAMES]
        cdef const char *segment = data
        cdef const char *value
        cdef const char *value_end
        cdef Py_ssize_t count = 0, at, name_size
        plain.tags = plain.uniq_key = plain.words = NULL
        if size > MOST_PROPERTIES or not is_ascii(data, size):
            return False
        while segment < end:
            value_end = <const char *> memchr(segment, VALUE_END, end - segment)
            if value_end == NULL:
                return False
            value = <const char *> memchr(segment, NAME_END, value_end - segment)
            if value == NULL or value == segment or value + 1 == value_end:
                return False
            name_size, value = value - segment, value + 1
            if memchr(value, NAME_END, value_end - value) != NULL or count == MOST_NAMES:
                return False
            if name_size >= 6 and memcmp(segment, b"INNER_", 6) == 0:
                return False
            for at in range(count):
                if sizes[at] == name_size and memcmp(names[at], segment, name_size) == 0:
                    return False
            names[count], sizes[count] = segment, name_size
            count += 1
            if name_size == 4 or name_size == 8:
                text = _text(value, value_end)
                scratch.keys.append(text)
                _heed(plain, segment, name_size, <PyObject *> text)
            segment = value_end + 1
        plain.properties_at, plain.properties_size = scratch.used, size
        put_bytes(scratch.take(size), data, size)
        scratch.used += size
        plain.tags_code = _hash(<object> plain.tags) if plain.tags != NULL else 0
        return True

    # ---- appending

    cdef list _append(
        self, _Scratch scratch, int64_t now, object file, int64_t position, object target
    ):
        """Append what was looked at: no line that fails but for want of memory, and none between."""
        cdef Py_buffer buffer
        cdef int64_t first = position, phy_offset = file.file_from_offset + position
        cdef int64_t offset
        cdef Py_ssize_t at
        cdef Plain *plain
        cdef list results = []
        pending, log, section = self._pending, self._log, self._section
        units, keys = pending.units, pending.keys
        PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
        try:
            if buffer.len < self._file_size:
                return None
            section.begun = True  # left so if a line below fails: the store has failed then
            columns = self._columns.of(units, keys)
            columns.grow(scratch.count)
            for at in range(scratch.count):
                plain = &scratch.plain[at]
                key = <object> plain.key
                offset = <object> PyDict_GetItemWithError(self._next, key)
                _write(plain, scratch.properties, <char *> buffer.buf + position, offset,
                       phy_offset, now)
                PyDict_SetItem(self._next, key, offset + 1)
                columns.add(key, offset, phy_offset, plain.size, plain.tags_code, now)
                if self._keys_wanted:
                    self._add_keys(columns, plain, phy_offset, now)
                appended = _new(self._appended, (phy_offset, plain.size, now))
                results.append(_new(
                    self._result, (self._ok, appended, offset, <object> plain.stored_at, "")
                ))
                position += plain.size
                phy_offset += plain.size
            file.wrote_position = position
            log.end = phy_offset
            log.appended_records += scratch.count
            units.end_phy_offset = phy_offset
            pending.last = appended
            section.begun = False
        finally:
            PyBuffer_Release(&buffer)
        return results

    cdef int _add_keys(
        self, _Columns columns, Plain *plain, int64_t phy_offset, int64_t now
    ) except -1:
        columns.add_keys(
            (<tuple> plain.key)[0],
            <object> plain.uniq_key if plain.uniq_key != NULL else None,
            <object> plain.words if plain.words != NULL else None,
            <object> plain.tags if self._tags_wanted and plain.tags != NULL else None,
            phy_offset, now,
        )
        return 0


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
    cdef char *out = put32(start + BLANK, plain.crc)
    out = put32(put32(out, <uint32_t> plain.queue_id), <uint32_t> plain.flag)
    out = put64(put64(out, offset), phy_offset)
    out = put64(put32(out, <uint32_t> plain.sys_flag), plain.born)
    out = put64(put_bytes(out, plain.born_host, HOST), now)
    out = put_bytes(out, plain.store_host, HOST)
    out = put64(put32(out, <uint32_t> plain.reconsumed), plain.prepared)
    out = put_bytes(put32(out, <uint32_t> plain.body_size), plain.body, plain.body_size)
    out = put_bytes(out, plain.topic, plain.topic_size)
    out = put16(out, <unsigned short> plain.properties_size)
    put_bytes(out, properties + plain.properties_at, plain.properties_size)
    in_this_order()
    put32(put32(start, <uint32_t> plain.size), <uint32_t> plain.magic)
