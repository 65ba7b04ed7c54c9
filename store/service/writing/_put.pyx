# cython: language_level=3, boundscheck=False, wraparound=False
"""FastPut: the put of plain messages, from the message to its position, in one call.

The call holds the GIL from its first look at the message to the last field that it sets, and runs
neither Python code nor a garbage collection meanwhile. So no other thread, no signal handler and no
fork intervenes, and the append lock need not be acquired: if it is free when the call begins, it
stays free until the call ends. If anything is not plain, or not cached, the call returns ``None``
and has changed nothing.

A garbage collection may begin when an object is created that the collector tracks (Python 3.11;
later versions begin it between two lines of Python). So all such objects, results and keys of
queues, are created in advance, blank, and the store time is read after that.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, int64_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from cqstore.store.core._crc32 cimport crc_prepare
from cqstore.store.core._faults cimport log_faults_seen
from cqstore.store.core._layout cimport (
    BLANK_BYTES, CRC_PROPERTY_BYTES, FIXED_BYTES, ROLLBACK, TRANSACTION,
)
from cqstore.store.core._record cimport blank_tuple, fill
from cqstore.store.log._tail cimport FilePositions, LogTail
from cqstore.store.queue._batch cimport UnitColumns
from cqstore.store.record._encode cimport batched
from cqstore.store.record._known cimport InternTable, KnownKey, KnownQueue, Value, take_value
from cqstore.store.record._host cimport HostWire
from cqstore.store.record._scratch cimport Encoded, Scratch, is_queued
from cqstore.store.record._write cimport write_record
from cqstore.store.service.dispatching._columns cimport BatchColumns
from cqstore.store.service.dispatching._waiting cimport InFlight, Waiting
from cqstore.store.service.runtime._flags cimport EnteredFlag, StateFlags

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()
    void PyObject_GC_Track(object made)
    void PyObject_GC_UnTrack(object made)

cdef enum:
    MAX_AT_ONCE = 1 << 20  # bytes of records per call, and of the memory for encoding that is kept

crc_prepare()


cdef int64_t now_ms() noexcept:
    """Return the store time, ms. No Python code: no later append gets an earlier time."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef class FastPut(FastEncoder):
    """Puts plain messages into one store. Any thread; all other appends take the lock."""

    def __init__(
        self, *, LogTail log not None, Waiting pending not None, StateFlags state not None,
        InFlight dispatcher not None, topics, scheduled, classes, encoded, ok,
        tags_prefix, max_body, file_size, keys_wanted, tags_wanted, alone, every, seal,
        reads_delay, delays,
    ):
        self._host, self._appended, self._result, queue_key = classes
        if not issubclass(self._host, HostWire):
            raise TypeError(f"{self._host.__name__} is no HostWire")
        self._columns, self._known = BatchColumns(), InternTable(queue_key, tags_prefix)
        self._scratch = Scratch(min(max_body, <Py_ssize_t> MAX_BODY), MAX_AT_ONCE)
        self._log, self._pending, self._state, self._dispatcher = log, pending, state, dispatcher
        self._section, self._locked = <EnteredFlag?> pending.appending, pending.lock.locked
        self._ok, self._no_reason = ok, ""
        self._topics, self._scheduled, self._next = topics, scheduled, pending.offsets.next
        self._max_body, self._file_size = max_body, file_size
        self._seal = <bytes?> seal if seal is not None else None
        if self._seal is not None and len(self._seal) != CRC_PROPERTY_BYTES:
            raise ValueError(f"{seal!r} is not the property for a checksum")
        self._reads_delay, self._delays = reads_delay, delays
        self._keys_wanted, self._tags_wanted = keys_wanted, tags_wanted
        self._alone, self._every, self._encoded = alone, every, encoded
        self._stamp, self._time = 0, 0

    def quick(self, message):
        """Put a message if no other work is due with it, see the protocol."""
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
        """Put a message; return its result, ``None`` if it must take the slow path."""
        cdef Scratch scratch = self._scratch
        cdef int64_t now
        result = self._blank_result()
        if not self._known.blank_count:
            self._known.reserve(1)
        now = now_ms()  # no other code runs from here on
        scratch.begin(1)
        scratch.count = 1
        if not self.encode(<PyObject *> message, scratch, now):
            return None
        return result if self._append_all(scratch, now, result, None) else None

    def several(self, messages):
        """Put all ``messages``, in order; return their results, ``None``: the slow path for all."""
        cdef tuple held = tuple(messages)
        cdef Py_ssize_t at, count = len(held)
        cdef Scratch scratch = self._scratch
        cdef int64_t now
        cdef list results
        if count > MAX_AT_ONCE // FIXED_BYTES:
            return None
        results = self._blank_results(count)
        self._known.reserve(count)
        now = now_ms()  # no other code runs from here on
        scratch.begin(count)
        for at in range(count):
            scratch.count = at + 1
            if not self.encode(<PyObject *> PyTuple_GET_ITEM(held, at), scratch, now):
                return None
        return results if self._append_all(scratch, now, None, results) else None

    def batch(self, batch):
        """Put all messages of a client batch that was checked as one message."""
        cdef Py_ssize_t count = batched(batch)
        cdef Scratch scratch = self._scratch
        cdef int64_t now
        cdef list results
        if not 0 < count <= MAX_AT_ONCE // FIXED_BYTES:
            return None
        results = self._blank_results(count)
        self._known.reserve(1)  # all are of one queue
        now = now_ms()  # no other code runs from here on
        if not self.encode_batch(batch, scratch, now) or scratch.count != count:
            return None
        return results if self._append_all(scratch, now, None, results) else None

    def encoded(self):
        """Return an object for the messages of a put that takes the slow path."""
        return self._encoded(self)

    # ---- results

    @cython.final
    cdef object _blank_result(self):
        """Return a result with a blank position."""
        result = blank_tuple(self._result, 5)
        fill(result, 1, blank_tuple(self._appended, 3))
        return result

    @cython.final
    cdef list _blank_results(self, Py_ssize_t count):
        """Return ``count`` of them, in a list that the garbage collector does not track yet."""
        cdef Py_ssize_t at
        cdef list results = []
        PyObject_GC_UnTrack(results)
        for at in range(count):
            results.append(self._blank_result())
        return results

    @cython.final
    cdef object _fill_result(
        self, object result, Encoded *entry, int64_t phy_offset, object timestamp,
        object queue_offset,
    ):
        """Fill a result with the position of a record; return the position.

        The collector need not track the position, which contains numbers.
        """
        place = <object> PyTuple_GET_ITEM(result, 1)
        fill(place, 0, phy_offset)
        fill(place, 1, entry.size)
        fill(place, 2, timestamp)
        fill(result, 0, self._ok)
        fill(result, 2, queue_offset)
        fill(result, 3, <object> entry.stored_at)
        fill(result, 4, self._no_reason)
        PyObject_GC_Track(result)
        return place

    # ---- appending

    @cython.final
    cdef bint _append_all(
        self, Scratch scratch, int64_t now, object result, list results
    ) except -1:
        """Append the encoded messages if there is space and it is allowed; return whether it did.

        Without ``results`` it is one message, and ``result`` becomes its result.
        """
        cdef FilePositions file = self._log.current
        if (
            not scratch.count
            or self._section.is_begun or self._state.is_unwritable
            or self._pending.units is None or self._pending.keys is None
            or self._locked()
        ):
            return False
        if file is None or file is not self._log.prepared:
            return False
        if scratch.total + BLANK_BYTES > self._file_size - file.wrote:
            return False
        target = file.mapped if file.heap is None else file.heap
        return target is not None and self._append(scratch, now, file, target, result, results)

    @cython.final
    cdef bint _append(
        self, Scratch scratch, int64_t now, FilePositions file, object target, object result,
        list results,
    ) except -1:
        """Append the encoded messages: a step fails only for lack of memory; nothing intervenes.

        Or if the file no longer backs its map: then the put is not acknowledged.
        """
        cdef Py_buffer buffer
        cdef int64_t position = file.wrote
        cdef int64_t phy_offset = file.start + position, offset
        cdef Py_ssize_t at
        cdef Encoded *entry
        cdef UnitColumns units = self._pending.units
        cdef BatchColumns columns
        place = None
        PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
        try:
            if buffer.len < self._file_size:
                return False
            # Stays set if a step below fails: the store has failed then.
            self._section.is_begun = True
            columns = self._columns.of(units, self._pending.keys)
            units.make_room(scratch.count)
            if now != self._stamp:
                self._stamp, self._time = now, now
            for at in range(scratch.count):
                entry = &scratch.entries[at]
                key = <object> entry.key
                if is_queued(entry):
                    queue_offset = <object> PyDict_GetItemWithError(self._next, key)
                    offset = queue_offset
                else:
                    queue_offset, offset = 0, 0
                write_record(entry, scratch.properties, <char *> buffer.buf + position, offset,
                             phy_offset, now, self._seal is not None)
                if is_queued(entry):
                    PyDict_SetItem(self._next, key, offset + 1)
                    units.add_at(
                        self._number(columns, entry), offset, phy_offset, <int32_t> entry.size,
                        entry.tags_code, now,
                    )
                if self._keys_wanted:
                    self._add_keys(columns, entry, phy_offset, now)
                if results is not None:
                    result = <object> PyList_GET_ITEM(results, at)
                place = self._fill_result(result, entry, phy_offset, self._time, queue_offset)
                position += entry.size
                phy_offset += entry.size
            if log_faults_seen():
                _check_written(file, target, self._state)
            file.wrote = position
            self._log.at = phy_offset
            self._log.appended += scratch.count
            units.end_phy_offset = phy_offset
            self._pending.last = place
            self._section.is_begun = False
        finally:
            PyBuffer_Release(&buffer)
        if results is not None:
            PyObject_GC_Track(results)
        return True

    cdef int _number(self, BatchColumns columns, Encoded *entry) except -1:
        """Return the number of the message's queue in the batch."""
        cdef KnownQueue *queue = entry.queue
        if queue.key == entry.key and queue.batch == columns.batch:
            return queue.number
        cdef int number = columns.units.index(<tuple> <object> entry.key)
        if queue.key == entry.key:  # otherwise another queue of this call uses the slot
            queue.number, queue.batch = number, columns.batch
        return number

    cdef int _add_keys(
        self, BatchColumns columns, Encoded *entry, int64_t phy_offset, int64_t now
    ) except -1:
        """Add the keys of a message, see ``IndexBatch.add_record``."""
        cdef Value uniq_key, words
        cdef const KnownKey *tags = NULL
        if entry.sys_flag & TRANSACTION == ROLLBACK:
            return 0
        take_value(entry.uniq_key, &uniq_key)
        take_value(entry.words, &words)
        if self._tags_wanted and entry.tags != NULL:
            tags = &self._known.tag(entry.tags).key
        return columns.add_record(
            (<tuple> entry.key)[0], &uniq_key, &words, tags, phy_offset, now
        )


cdef int _check_written(object file, object target, object state) except -1:
    """Refuse to acknowledge data that the file of the map may not have: the store has failed then.

    This is Python code in the middle of a put, so the garbage collector is disabled here only: its
    callbacks could put, and would find the section begun.
    """
    cdef int collecting = PyGC_Disable()
    try:
        file.check_written(target)
    except BaseException as exc:
        state.fail(exc)
        raise
    finally:
        if collecting:
            PyGC_Enable()
    return 0
