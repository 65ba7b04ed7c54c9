# cython: language_level=3, boundscheck=False, wraparound=False
"""EncodedMessages: messages of a put whose queue slots are not cached, or that take long.

One call encodes them, their checksums are computed without the GIL, and calls that hold the append
lock append them.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from cqstore.store.core._crc32 cimport crc_of, crc_prepare
from cqstore.store.core._faults cimport log_faults_seen
from cqstore.store.core._layout cimport BLANK_BYTES
from cqstore.store.log._tail cimport FilePositions
from cqstore.store.queue._batch cimport UnitColumns
from cqstore.store.record._host cimport HostWire
from cqstore.store.record._message cimport Message
from cqstore.store.record._scratch cimport Encoded, Scratch, is_queued
from cqstore.store.record._write cimport write_record
from cqstore.store.service.dispatching._columns cimport BatchColumns
from cqstore.store.service.writing._put cimport MAX_BODY, FastPut, now_ms

cdef enum:
    NOTED_AT_ONCE = 1 << 12  # records written before other threads may run

crc_prepare()


cdef class EncodedMessages:
    """Messages of one put in order, encoded except for their positions. One thread.

    ``add`` them, ``sum`` them, then under the append lock, inside its section and with the slots of
    all ``unassigned`` queues filled, ``append`` them into file after file, each with enough space
    for the next one. The GIL is released for the checksums of long bodies and for large writes.
    Written bytes are part of the log only when its end is moved, after everything that the call
    writes; a killed process leaves complete records only, because each record's size is written
    last.
    """

    cdef FastPut _puts
    cdef Scratch _scratch
    cdef Py_ssize_t _summed, _done
    cdef int64_t _now

    def __cinit__(self, FastPut puts not None):
        self._puts = puts
        self._scratch = Scratch(puts._max_body, <Py_ssize_t> INT64_MAX, is_held=True)
        self._scratch.begin(1)
        self._now = now_ms()

    def __len__(self):
        return self._scratch.count

    @property
    def total_bytes(self):
        """Size of all records to append, in bytes."""
        cdef Py_ssize_t at
        cdef int64_t found = self._scratch.total
        for at in range(self._done):
            found -= self._scratch.entries[at].size
        return found

    @property
    def next_bytes(self):
        """Size of the next record to append, in bytes; 0: all are appended."""
        if self._done == self._scratch.count:
            return 0
        return self._scratch.entries[self._done].size

    def add(self, Message message not None, tuple learnt not None, store_host=None):
        """Add a message if it is well-formed; return whether it is.

        ``message`` is the caller's own, ``learnt`` the encoded form of its topic. The message's
        requests were handled before: it is only stored. ``store_host`` is the host in the result,
        by default that of the message.
        """
        cdef Scratch scratch = self._scratch
        cdef list held = scratch.keys
        cdef bint is_good = False
        self._puts._known.reserve(1)  # no other code runs until references to all are held
        cdef Py_ssize_t used = scratch.used, total = scratch.total
        cdef Encoded *entry = scratch.more()
        try:
            is_good = (
                self._puts.take_topic(entry, learnt)
                and self._puts.encode_rest(message, entry, scratch, self._now)
                and self._puts.find_queue(entry, scratch)
            )
            if is_good:
                _hold(entry, held, message, learnt)
                if store_host is not None:
                    held.append(store_host)
                    entry.stored_at = <PyObject *> store_host
        finally:
            if not is_good:
                scratch.count -= 1
                scratch.used, scratch.total = used, total
        return is_good

    def sum(self):
        """Compute the checksums of the bodies that were added since the last call."""
        cdef Py_ssize_t at, todo = 0
        cdef Encoded *entry = self._scratch.entries
        for at in range(self._summed, self._scratch.count):
            todo += entry[at].body_size
        if todo > MAX_BODY:
            with nogil:
                _sum_all(entry, self._summed, self._scratch.count)
        else:
            _sum_all(entry, self._summed, self._scratch.count)
        self._summed = self._scratch.count

    def unassigned(self):
        """Return the queues (topic and queue id) whose next offsets are not cached."""
        cdef Py_ssize_t at
        cdef PyObject *key
        cdef list found = []
        for at in range(self._done, self._scratch.count):
            key = self._scratch.entries[at].key
            if is_queued(&self._scratch.entries[at]) and (
                PyDict_GetItemWithError(self._puts._next, <object> key) == NULL
            ):
                found.append(<object> key)
        return found

    def skip(self, Py_ssize_t count):
        """Skip the next ``count`` messages."""
        if not 0 <= count <= self._scratch.count - self._done:
            raise ValueError("there are not so many")
        self._done += count

    def append(self, target not None, list results not None):
        """Append as many as fit the current file, at least one; ``results`` get their results.

        ``target``: the buffer of that file.

        Raises:
            ValueError: the next one does not fit the file, or ``sum`` was not called.
        """
        cdef FastPut puts = self._puts
        cdef FilePositions file = puts._log.current
        cdef Py_buffer buffer
        cdef Py_ssize_t first = self._done, last = self._fitting(file)
        cdef int64_t now = now_ms(), size
        if last == first or last > self._summed:
            raise ValueError("no record is ready for the file")
        PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
        try:
            if buffer.len < puts._file_size:
                raise ValueError("the file is shorter than its log's files are")
            size = self._take_places(first, last, file.start + file.wrote)
            self._write(first, last, <char *> buffer.buf + file.wrote, now, size)
        finally:
            PyBuffer_Release(&buffer)
        if log_faults_seen():
            file.check_written(target)
        self._note(first, last, now, results)
        file.wrote += size
        puts._log.at = file.start + file.wrote
        puts._log.appended += last - first
        self._done = last

    # ---- inside

    cdef Py_ssize_t _fitting(self, FilePositions file) noexcept:
        """Return the index after the last message that fits the file."""
        cdef int64_t room
        cdef Py_ssize_t last = self._done
        if file is None:
            return last
        room = self._puts._file_size - file.wrote - BLANK_BYTES
        while last < self._scratch.count and self._scratch.entries[last].size <= room:
            room -= self._scratch.entries[last].size
            last += 1
        return last

    cdef int64_t _take_places(
        self, Py_ssize_t first, Py_ssize_t last, int64_t phy_offset
    ) except -1:
        """Assign positions to records; return their total size in bytes."""
        cdef Py_ssize_t at
        cdef Encoded *entry
        cdef int64_t start = phy_offset
        cdef dict following = self._puts._next
        for at in range(first, last):
            entry = &self._scratch.entries[at]
            entry.phy_offset, entry.offset = phy_offset, 0
            phy_offset += entry.size
            if is_queued(entry):
                key = <object> entry.key
                entry.offset = following[key]
                following[key] = entry.offset + 1
        return phy_offset - start

    cdef int _write(
        self, Py_ssize_t first, Py_ssize_t last, char *start, int64_t now, int64_t size
    ) except -1:
        cdef const Encoded *entry = self._scratch.entries
        cdef const char *properties = self._scratch.properties
        cdef bint is_sealed = self._puts._seal is not None
        if size > MAX_BODY:
            with nogil:
                _write_all(entry, first, last, properties, start, now, is_sealed)
        else:
            _write_all(entry, first, last, properties, start, now, is_sealed)
        return 0

    cdef int _note(
        self, Py_ssize_t first, Py_ssize_t last, int64_t now, list results
    ) except -1:
        """Add units and keys of the written records, and create the results."""
        cdef FastPut puts = self._puts
        cdef UnitColumns units = puts._pending.units
        cdef BatchColumns columns = puts._columns.of(units, puts._pending.keys)
        cdef Py_ssize_t at
        cdef Encoded *entry
        timestamp = now
        place = None
        for at in range(first, last):
            if at % NOTED_AT_ONCE == NOTED_AT_ONCE - 1:
                with nogil:  # a thread that waits for the GIL gets it now
                    pass
            entry = &self._scratch.entries[at]
            if is_queued(entry):
                self._add_unit(units, puts._number(columns, entry), entry, now)
            if puts._keys_wanted:
                puts._add_keys(columns, entry, entry.phy_offset, now)
            result = puts._blank_result()
            place = puts._fill_result(result, entry, entry.phy_offset, timestamp, entry.offset)
            results.append(result)
        units.end_phy_offset = entry.phy_offset + entry.size
        puts._pending.last = place
        return 0

    cdef int _add_unit(self, UnitColumns units, int number, Encoded *entry, int64_t now) except -1:
        cdef int64_t code = entry.tags_code
        if entry.is_scheduled and entry.delay != NULL:
            code = self._puts._delays(<object> entry.delay, now, code)
        units.make_room(1)
        units.add_at(
            number, entry.offset, entry.phy_offset, <int32_t> entry.size, code, now
        )
        return 0


cdef int _hold(Encoded *entry, list held, Message message, tuple learnt) except -1:
    """Hold references to objects that the message may lose."""
    cdef PyObject *values[4]
    cdef Py_ssize_t at
    values[0], values[1], values[2], values[3] = (
        entry.tags, entry.uniq_key, entry.words, entry.delay
    )
    for at in range(4):
        if values[at] != NULL:
            held.append(<object> values[at])
    held.append(learnt)
    held.append(message.body)
    held.append(message.store_host)
    held.append((<HostWire> message.store_host).wire)
    held.append((<HostWire> message.born_host).wire)
    return 0


cdef void _sum_all(Encoded *entry, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(first, last):
        entry[at].crc = crc_of(entry[at].body, entry[at].body_size)


cdef void _write_all(
    const Encoded *entry, Py_ssize_t first, Py_ssize_t last, const char *properties, char *start,
    int64_t now, bint is_sealed,
) noexcept nogil:
    """Write consecutive records, in order: no complete record follows an incomplete one."""
    cdef Py_ssize_t at
    for at in range(first, last):
        write_record(
            &entry[at], properties, start, entry[at].offset, entry[at].phy_offset, now, is_sealed
        )
        start += entry[at].size
