# FastPut: the put of plain messages, from the message to its place, in one call.
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
    bint is_ascii(const char *data, size_t size)
    int64_t get16(const char *at)
    int64_t get32(const char *at) noexcept nogil

from cpython.pycapsule cimport PyCapsule_GetPointer

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MAX_BODY = 1 << 16  # a longer one is summed while others run
    MAX_AT_ONCE = 1 << 20  # bytes of records; likewise, and what they are looked at in stays
    NOTED_AT_ONCE = 1 << 12  # records, before others may run


include "_plain.pxi"
include "_written.pxi"
include "_looks.pxi"


cdef class FastPut(_Looks):
    """Puts plain messages into one store. Any thread; whoever appends otherwise has the lock."""

    cdef _Scratch _scratch
    cdef _Columns _columns
    cdef LogTail _log
    cdef StateFlags _state
    cdef EnteredFlag _section
    cdef Waiting _pending
    cdef InFlight _dispatcher
    cdef object _locked
    cdef object _appended, _result, _ok, _no_reason, _time, _delays
    cdef dict _clock_names
    cdef int64_t _stamp, _due
    cdef Py_ssize_t _max_body, _file_size, _every
    cdef bint _alone, _keys_wanted, _tags_wanted
    cdef const void *_faults
    cdef object _fault_count  # what the pointer leads into

    def __init__(
        self, *, LogTail log not None, Waiting pending not None, StateFlags state not None,
        InFlight dispatcher not None, clock, topics, scheduled, timer, classes, ok, tags_prefix,
        max_body, file_size, keys_wanted, tags_wanted, alone, every, fault_count, seal,
        refuses_delay, has_light, delays,
    ):
        self._faults = PyCapsule_GetPointer(fault_count, "cqstore.faulty_maps")
        self._fault_count = fault_count
        self._host, self._appended, self._result = classes
        if not issubclass(self._host, HostWire):
            raise TypeError(f"{self._host.__name__} is no HostWire")
        self._columns, self._known = _Columns(), _InternTable(tags_prefix)
        self._scratch = _Scratch(min(max_body, <Py_ssize_t> MAX_BODY), MAX_AT_ONCE)
        self._log, self._pending, self._state, self._dispatcher = log, pending, state, dispatcher
        self._section, self._locked = <EnteredFlag?> pending.appending, pending.lock.locked
        self._clock_names, self._ok, self._no_reason = vars(clock), ok, ""
        self._topics, self._scheduled, self._next = topics, scheduled, pending.offsets.next
        self._max_body, self._file_size = max_body, file_size
        self._timer, self._seal = timer, <bytes?> seal if seal is not None else None
        if self._seal is not None and len(self._seal) != CRC_PROPERTY_BYTES:
            raise ValueError(f"{seal!r} is not the property for a checksum")
        self._refuses_delay, self._has_light, self._delays = refuses_delay, has_light, delays
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
            self._scratch.count, self._scratch.is_batch = 1, False
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
            self._scratch.is_batch = True
            if not self._look_into(batch, self._scratch, now):
                return None
            if self._append_all(self._scratch, now, results) is None:
                return None
            return results
        finally:
            if collecting:
                PyGC_Enable()

    def encoded(self):
        """Return what takes the messages of a put that was not taken otherwise."""
        return EncodedMessages(self)

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
        if count > MAX_AT_ONCE // FIXED_BYTES:
            return None
        scratch.begin(count)
        scratch.is_batch = False
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
                if _is_queued(plain):
                    queue_offset = <object> PyDict_GetItemWithError(self._next, key)
                    offset = queue_offset
                else:
                    queue_offset, offset = 0, 0
                _write(plain, scratch.properties, <char *> buffer.buf + position, offset,
                       phy_offset, now, self._seal is not None)
                if _is_queued(plain):
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
        if plain.sys_flag & TRANSACTION == ROLLBACK:
            return 0
        take_value(plain.uniq_key, &uniq_key)
        take_value(plain.words, &words)
        if self._tags_wanted and plain.tags != NULL:
            tags = &self._known.tag(plain.tags).key
        return columns.add_record(
            (<tuple> plain.key)[0], &uniq_key, &words, tags, phy_offset, now
        )
