# The log and its files, which are held while they are read. Part of `_reads.pyx`.

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from libc.stdint cimport INT64_MAX

cdef class PlainLog:
    """Where a log begins and ends, and its files, without a line of Python where nothing is odd.

    Of a log that does not keep its fields in slots the methods are asked. Any thread.
    """

    def __init__(self, log):
        self.log, self.readable = log, log.readable
        self.files = getattr(log, "files", None)
        self.at_end = slot_of(type(log), b"end")
        self.at_by_start = slot_of(type(self.files), b"by_start")
        self.file_size = self.files.file_size if self.at_by_start else 0

    cdef int64_t end(self) except? -2:
        """Return where the next record goes."""
        cdef int64_t found = 0
        if self.at_end and whole_number(
            in_slot(<PyObject *> self.log, self.at_end), 0, INT64_MAX, &found
        ):
            return found
        return self.log.max_phy_offset()

    cdef int64_t least(self) except? -2:
        """Return where the oldest file starts; -1 without files."""
        cdef int64_t found = 0
        cdef Py_ssize_t at = 0
        cdef PyObject *start = NULL
        cdef PyObject *by_start = self._by_start()
        if by_start != NULL:
            if not PyDict_Next(<object> by_start, &at, &start, NULL):
                return -1
            if whole_number(start, 0, INT64_MAX, &found):
                return found
        return self.log.min_phy_offset()

    cdef bint open(self, int64_t phy, Part *part, list files) except -1:
        """Hold the file that ``phy`` lies in, in ``files``, and find what of it may be read.

        False: no file holds it; ``part`` is as it was.
        """
        cdef Held held
        cdef int64_t start = 0, there = 0, end
        map_ = self._mapped(phy, &start, &there)
        if map_ is None:
            file = self.readable(phy)
            if file is None:
                return False
            start, map_, there = file
        held = Held(map_)
        end = start + min(there, <int64_t> held.buffer.len)
        if not start <= phy < end:
            return False
        files.append(held)
        part.start, part.end, part.data = start, end, <const uint8_t *> held.buffer.buf
        return True

    cdef PyObject *_by_start(self) noexcept:
        """Return the files by their starts, which nobody changes; NULL: the log has them elsewhere."""
        cdef PyObject *found
        if not self.at_by_start:
            return NULL
        found = in_slot(<PyObject *> self.files, self.at_by_start)
        return found if found != NULL and type(<object> found) is dict else NULL

    cdef object _mapped(self, int64_t phy, int64_t *start, int64_t *there):
        """Return the map of the file that holds ``phy``, where it starts, and how much it has.

        ``None``: it is not mapped yet, or waits in memory, or there is none.
        """
        cdef PyObject *none = <PyObject *> None
        cdef PyObject *by_start = self._by_start()
        cdef PyObject *entry
        cdef PyObject *found
        if by_start == NULL or phy < 0:
            return None
        start[0] = phy - phy % self.file_size
        entry = PyDict_GetItemWithError(<object> by_start, start[0])
        if entry == NULL:
            return None
        file = <object> entry  # held: to learn of its class may run anything
        if not self._learn(file):
            return None
        found = in_slot(<PyObject *> file, self.at_mapped)
        if (
            found == NULL or found == none or in_slot(<PyObject *> file, self.at_heap) != none
            or not whole_number(
                in_slot(<PyObject *> file, self.at_wrote_position), 0, INT64_MAX, there
            )
        ):
            return None
        return <object> found

    cdef bint _learn(self, object file) except -1:
        """Learn where the fields of a file lie; return whether they lie in slots."""
        cdef Py_ssize_t mapped, heap, wrote_position
        if type(file) is self.file_class:
            return True
        mapped, heap = slot_of(type(file), b"mapped"), slot_of(type(file), b"heap")
        wrote_position = slot_of(type(file), b"wrote_position")
        if not (mapped and heap and wrote_position):
            return False
        self.at_mapped, self.at_heap, self.at_wrote_position = mapped, heap, wrote_position
        self.file_class = type(file)
        return True


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class StoreTimes:
    """Store times of records, for one search: what was looked at stays held until its end."""

    def __cinit__(self, PlainLog log not None, int64_t least):
        self.log, self.files, self.last = log, [], 0
        self.least, self.end = least, log.end()
        for at in range(PARTS):
            self.parts[at].start = self.parts[at].end = 0

    cdef int64_t of(self, int64_t phy, int32_t size, bint *is_plain) except? -2:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log.

        ``is_plain`` becomes false where its file does not lie there, or was cut: the twin knows
        what that is.
        """
        cdef Part *part = &self.parts[self.last]
        cdef const uint8_t *record
        cdef int64_t found
        cdef int at
        if phy < 0 or phy < self.least or size < LEAST_RECORD or phy > self.end - size:
            return -1
        if not part.start <= phy < part.end:
            for at in range(PARTS):
                if self.parts[at].start <= phy < self.parts[at].end:
                    self.last = at
                    break
            else:
                self.last = (self.last + 1) % PARTS
                if not self.log.open(phy, &self.parts[self.last], self.files):
                    is_plain[0] = False
                    return -1
            part = &self.parts[self.last]
        if part.end - phy < STAMP_SPAN:
            return -1
        record = part.data + (phy - part.start)
        found = load64(record + HEAD_BYTES + (
            HOST_V6 if load32(record + AT_SYS_FLAG) & BORN_V6 else HOST_V4
        ))
        if log_faults_seen() or (found & 0xFF == 0 and not is_of_whole_map(record)):
            is_plain[0] = False
        return found
