# PlainPuts: the put of plain messages, from the message to its place, in one call.
#
# The call holds the interpreter's lock from its first look at the message to the last field that it
# sets, and runs no line of Python and no collection of garbage meanwhile. So no other thread, no
# signal's handler and no fork comes in between, and the append lock needs no taking: where nobody
# has it as the call begins, nobody can until it ends. Where anything is not plain, or not at hand,
# it returns ``None`` and has changed nothing.

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem
from cpython.object cimport Py_TYPE
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from libc.stdlib cimport free, realloc
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from time import time_ns  # the one that needs no call

cdef extern from "_record.h":
    object tuple_to_fill(object type, Py_ssize_t size)
    char *put16(char *at, unsigned short value)
    char *put_bytes(char *at, const char *data, size_t size)
    void in_this_order()
    bint is_ascii(const char *data, size_t size)
    int64_t get16(const char *at)
    int64_t get32(const char *at) noexcept nogil

from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MOST_BODY = 1 << 16  # a longer one is summed while others run
    MOST_AT_ONCE = 1 << 20  # bytes of records; likewise, and what they are looked at in stays
    ODD_FLAGS = PREPARED | BORN_V6 | STORE_V6 | INNER_BATCH | PASSED_OVER


include "_plain.pxi"
include "_written.pxi"


cdef inline bint is_irregular(const char *name, Py_ssize_t size) noexcept:
    """Return whether a property by its name may ask for more than to be stored."""
    return size >= 5 and (
        memcmp(name, b"INNER", 5) == 0 or memcmp(name, b"DELAY", 5) == 0
        or memcmp(name, b"TIMER", 5) == 0
    )


cdef class PlainPuts:
    """Puts plain messages into one store. Any thread; whoever appends otherwise has the lock."""

    cdef _Scratch _scratch
    cdef _Known _known
    cdef _Columns _columns
    cdef LogTail _log
    cdef StateFlags _state
    cdef SectionFlag _section
    cdef Waiting _pending
    cdef HandedOn _dispatcher
    cdef object _locked
    cdef object _host, _appended, _result, _ok, _no_reason, _topics, _scheduled, _time
    cdef dict _next, _clock_names
    cdef int64_t _stamp, _due
    cdef Py_ssize_t _max_body, _file_size, _every
    cdef bint _alone, _keys_wanted, _tags_wanted
    cdef const void *_faults
    cdef object _fault_count  # what the pointer leads into

    def __init__(
        self, *, LogTail log not None, Waiting pending not None, StateFlags state not None,
        HandedOn dispatcher not None, clock, topics, scheduled, classes, ok, tags_prefix, max_body,
        file_size, keys_wanted, tags_wanted, alone, every, fault_count,
    ):
        self._faults = PyCapsule_GetPointer(fault_count, "cqstore.faulty_maps")
        self._fault_count = fault_count
        self._host, self._appended, self._result = classes
        if not issubclass(self._host, HostWire):
            raise TypeError(f"{self._host.__name__} is no HostWire")
        self._columns, self._known = _Columns(), _Known(tags_prefix)
        self._scratch = _Scratch()
        self._log, self._pending, self._state, self._dispatcher = log, pending, state, dispatcher
        self._section, self._locked = <SectionFlag?> pending.appending, pending.lock.locked
        self._clock_names, self._ok, self._no_reason = vars(clock), ok, ""
        self._topics, self._scheduled, self._next = topics, scheduled, pending.offsets.next
        self._max_body, self._file_size = min(max_body, <Py_ssize_t> MOST_BODY), file_size
        self._keys_wanted, self._tags_wanted = keys_wanted, tags_wanted
        self._alone, self._every = alone, every
        self._stamp, self._time = 0, 0

    def quick(self, message):
        """Put a message if nothing else is due with it, see the protocol."""
        cdef int64_t appended = self._log.appended
        if not self._alone or self._pending.units is None:
            return None
        if appended >= self._due:
            self._due = appended + self._every
            return None
        if self._pending.units.units.used + 1 >= self._dispatcher.full:
            return None
        result = self.one(message)
        return False if result is None else result

    cpdef one(self, message):
        """Put a message; return its result, ``None`` if it has to go the long way."""
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        try:
            self._scratch.begin(1)
            self._scratch.count = 1
            if not self._look(<PyObject *> message, self._scratch, now):
                return None
            return self._append_all(self._scratch, now, None)
        finally:
            if collecting:
                PyGC_Enable()

    def several(self, messages):
        """Put all ``messages``, in order; return their results, ``None``: the long way for all."""
        cdef tuple held = tuple(messages)
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        cdef list results = []
        try:
            return results if self._put(held, now, results) is not None else None
        finally:
            if collecting:
                PyGC_Enable()

    def batch(self, batch):
        """Put all messages of a client batch that was checked as one message."""
        cdef int64_t now = self._now()
        cdef int collecting = PyGC_Disable()
        cdef list results = []
        try:
            if not self._look_into(batch, self._scratch, now):
                return None
            if self._append_all(self._scratch, now, results) is None:
                return None
            return results
        finally:
            if collecting:
                PyGC_Enable()

    cdef int64_t _now(self) except? -1:
        """Return the store time, ms. No line of Python: nobody appends behind it with an earlier one."""
        cdef timespec now
        asked = self._clock_names["time_ns"]
        if asked is time_ns and clock_gettime(CLOCK_REALTIME, &now) == 0:
            return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000
        return <int64_t> asked() // 1_000_000

    cdef object _put(self, tuple messages, int64_t now, list results):
        cdef Py_ssize_t at, count = len(messages)
        cdef _Scratch scratch = self._scratch
        if count > MOST_AT_ONCE // FIXED_BYTES:
            return None
        scratch.begin(count)
        for at in range(count):
            scratch.count = at + 1
            if not self._look(<PyObject *> PyTuple_GET_ITEM(messages, at), scratch, now):
                return None
        return self._append_all(scratch, now, results)

    cdef object _append_all(self, _Scratch scratch, int64_t now, list results):
        """Append what was looked at, if there is room and nothing forbids it; return the last result.

        ``results`` get those of all, if they are wanted.
        """
        cdef FilePositions file = self._log.current
        if (
            not scratch.count
            or self._section.is_begun or self._state.is_unwritable
            or self._pending.units is None or self._pending.keys is None
            or self._locked()
        ):
            return None
        if file is None or file is not self._log.prepared:
            return None
        if scratch.total + BLANK_BYTES > self._file_size - file.wrote:
            return None
        target = file.mapped if file.heap is None else file.heap
        return None if target is None else self._append(scratch, now, file, target, results)

    # ---- looking

    cdef bint _look(self, PyObject *given, _Scratch scratch, int64_t now) except -1:
        """Look at a message; return whether it is plain."""
        cdef Plain *plain = &scratch.plain[scratch.count - 1]
        if type(<object> given) is not Message:
            return False
        cdef Message message = <Message> given
        if not (
            self._look_at_head(message, plain, now)
            and self._look_at_body(plain, <PyObject *> message.body)
            and whole_number(<PyObject *> message.flag, INT32_MIN, INT32_MAX, &plain.flag)
            and whole_number(
                <PyObject *> message.prepared_transaction_offset, INT64_MIN, INT64_MAX,
                &plain.prepared,
            )
            and self._look_at_properties(plain, <PyObject *> message.properties, scratch)
        ):
            return False
        return self._look_at_queue(plain, scratch)

    cdef bint _look_at_head(self, Message message, Plain *plain, int64_t now) except -1:
        """Look at what the messages of a client batch have in common."""
        if not (
            self._look_at_topic(plain, <PyObject *> message.topic)
            and whole_number(<PyObject *> message.queue_id, 0, INT32_MAX, &plain.queue_id)
            and whole_number(<PyObject *> message.sys_flag, 0, INT32_MAX, &plain.sys_flag)
            and not plain.sys_flag & ODD_FLAGS
            and whole_number(<PyObject *> message.born_timestamp, INT64_MIN, INT64_MAX, &plain.born)
            and whole_number(
                <PyObject *> message.reconsume_times, INT32_MIN, INT32_MAX, &plain.reconsumed
            )
            and self._look_at_host(&plain.born_host, <PyObject *> message.born_host)
            and self._look_at_host(&plain.store_host, <PyObject *> message.store_host)
        ):
            return False
        plain.born = plain.born or now
        plain.stored_at = <PyObject *> message.store_host
        return True

    cdef bint _look_at_queue(self, Plain *plain, _Scratch scratch) except -1:
        plain.size = FIXED_BYTES + plain.body_size + plain.topic_size + 2 + plain.properties_size
        scratch.total += plain.size
        if scratch.total > MOST_AT_ONCE:
            return False
        plain.queue = self._known.queue(plain.key, plain.queue_id)
        plain.key = plain.queue.key
        scratch.keys.append(<object> plain.key)
        if PyDict_GetItemWithError(self._next, <object> plain.key) == NULL:
            return False
        # Last, for it takes longest: what is not eligible was found out before it.
        plain.crc = crc_of(plain.body, plain.body_size) & 0x7FFFFFFF
        return True

    cdef bint _look_at_topic(self, Plain *plain, PyObject *topic) except -1:
        if type(<object> topic) is not str:
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
        if not PyBytes_CheckExact(<object> body):
            return False
        return self._take_body(
            plain, PyBytes_AS_STRING(<object> body), PyBytes_GET_SIZE(<object> body)
        )

    cdef bint _take_body(self, Plain *plain, const char *body, Py_ssize_t size) noexcept:
        plain.body, plain.body_size = body, size
        if plain.body_size > self._max_body:
            return False
        return True

    cdef bint _look_at_host(self, const char **wire, PyObject *host) except -1:
        if <PyObject *> Py_TYPE(<object> host) != <PyObject *> self._host:
            return False
        cdef PyObject *found = <PyObject *> (<HostWire> host).wire
        if not PyBytes_CheckExact(<object> found):
            return False
        wire[0] = PyBytes_AS_STRING(<object> found)
        return PyBytes_GET_SIZE(<object> found) == HOST_V4

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
        if not PyDict_CheckExact(<object> properties):
            return False
        plain.tags = plain.uniq_key = plain.words = NULL
        plain.properties_at = scratch.used
        while PyDict_Next(<object> properties, &at, &name, &value):
            if not _plain(<object> name, &name_text, &name_size):
                return False
            if not _plain(<object> value, &text, &size):
                return False
            if is_irregular(name_text, name_size):
                return False
            if scratch.used + name_size + size + 2 - plain.properties_at > MOST_PROPERTIES:
                return False
            _heed(plain, name_text, name_size, value)
            out = put_bytes(scratch.take(name_size + size + 2), name_text, name_size)
            out[0] = NAME_END
            out = put_bytes(out + 1, text, size)
            out[0] = VALUE_END
            scratch.used += name_size + size + 2
        plain.tags_code = self._known.tag(plain.tags).code if plain.tags != NULL else 0
        plain.properties_size = scratch.used - plain.properties_at
        return True

    # ---- looking into a client batch

    cdef bint _look_into(self, object given, _Scratch scratch, int64_t now) except -1:
        """Look at the messages in a batch; return whether all are plain, lengths and all."""
        if type(given) is not Message:
            return False
        cdef Message batch = <Message> given
        cdef Plain common
        cdef Plain *plain
        scratch.begin(1)
        if not self._look_at_head(batch, &common, now):
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
            plain = scratch.more()
            plain[0] = common
            plain.flag, plain.prepared = get32(start + at + AT_FLAG_OF_BATCHED), 0
            if not (
                self._take_body(plain, start + at + BATCHED_BYTES, body_size)
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
            if is_irregular(segment, name_size):
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
        plain.tags_code = self._known.tag(plain.tags).code if plain.tags != NULL else 0
        return True

    # ---- appending

    cdef object _append(
        self, _Scratch scratch, int64_t now, FilePositions file, object target, list results
    ):
        """Append what was looked at: no line that fails but for want of memory, and none between.

        Or where the file does not take what is written into its map: that is not acknowledged.
        """
        cdef Py_buffer buffer
        cdef int64_t position = file.wrote
        cdef int64_t phy_offset = file.start + position, offset
        cdef Py_ssize_t at
        cdef Plain *plain
        cdef UnitColumns units = self._pending.units
        cdef _Columns columns
        place = result = None
        PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
        try:
            if buffer.len < self._file_size:
                return None
            # Left so if a line below fails: the store has failed then.
            self._section.is_begun = True
            columns = self._columns.of(units, self._pending.keys)
            units.make_room(scratch.count)
            if now != self._stamp:
                self._stamp, self._time = now, now
            for at in range(scratch.count):
                plain = &scratch.plain[at]
                key = <object> plain.key
                queue_offset = <object> PyDict_GetItemWithError(self._next, key)
                offset = queue_offset
                _write(plain, scratch.properties, <char *> buffer.buf + position, offset,
                       phy_offset, now)
                PyDict_SetItem(self._next, key, offset + 1)
                units.add_at(
                    self._number(columns, plain), offset, phy_offset, <int32_t> plain.size,
                    plain.tags_code, now,
                )
                if self._keys_wanted:
                    self._add_keys(columns, plain, phy_offset, now)
                place = _three(self._appended, phy_offset, plain.size, self._time)
                result = _five(
                    self._result, self._ok, place, queue_offset, <object> plain.stored_at,
                    self._no_reason,
                )
                if results is not None:
                    results.append(result)
                position += plain.size
                phy_offset += plain.size
            if any_faults(self._faults):
                _check_written(file, target, self._state)
            file.wrote = position
            self._log.at = phy_offset
            self._log.appended += scratch.count
            units.end_phy_offset = phy_offset
            self._pending.last = place
            self._section.is_begun = False
        finally:
            PyBuffer_Release(&buffer)
        return result

    cdef int _number(self, _Columns columns, Plain *plain) except -1:
        """Return the number of the message's queue in the batch."""
        cdef KnownQueue *queue = plain.queue
        if queue.key == plain.key and queue.batch == columns.batch:
            return queue.number
        cdef int number = columns.units.index(<tuple> <object> plain.key)
        if queue.key == plain.key:  # else another queue of this call has the place
            queue.number, queue.batch = number, columns.batch
        return number

    cdef int _add_keys(
        self, _Columns columns, Plain *plain, int64_t phy_offset, int64_t now
    ) except -1:
        """Add the keys of a message, see ``IndexBatch.add_record``."""
        cdef Value uniq_key, words
        cdef const KnownKey *tags = NULL
        take_value(plain.uniq_key, &uniq_key)
        take_value(plain.words, &words)
        if self._tags_wanted and plain.tags != NULL:
            tags = &self._known.tag(plain.tags).key
        return columns.add_record(
            (<tuple> plain.key)[0], &uniq_key, &words, tags, phy_offset, now
        )
