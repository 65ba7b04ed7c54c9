# cython: language_level=3, boundscheck=False, wraparound=False
"""FastLog and StoreTimes: the log and its files, which stay open while they are read.

Nothing from disk is trusted: every read is bounded by the object that it reads, and each value that
a bound depends on is read once.
"""

cimport cython
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._faults cimport is_of_whole_map, log_faults_seen
from cqstore.store.core._layout cimport (
    AT_SYS_FLAG, BORN_V6, HEAD_BYTES, HOST_V4, HOST_V6, MIN_RECORD, STAMP_SPAN,
)
from cqstore.store.log._tail cimport FilePositions, FilesByStart, LogTail


cdef class FastLog:
    """The start, end and files of a log, without Python code on the fast path.

    If the log is not a ``LogTail``, or its files are not a ``FilesByStart``, their methods are
    called. Any thread.
    """

    def __init__(self, log):
        files = getattr(log, "files", None)
        self.log, self.readable = log, log.readable
        self.tail = log if isinstance(log, LogTail) else None
        self.files = files if isinstance(files, FilesByStart) else None

    cdef int64_t end(self) except? -2:
        """Return the end of the log, where the next record is appended."""
        return self.tail.at if self.tail is not None else self.log.max_phy_offset()

    cdef int64_t min_phy_offset(self) except? -2:
        """Return the start of the oldest file; -1 without files."""
        cdef Py_ssize_t at = 0
        cdef PyObject *first = NULL
        if self.files is not None and self.files.by_start is not None:
            if not PyDict_Next(self.files.by_start, &at, NULL, &first):
                return -1
            if isinstance(<object> first, FilePositions):
                return (<FilePositions> first).start
        return self.log.min_phy_offset()

    cdef bint open(self, int64_t phy, Part *part, list files) except -1:
        """Hold the file that contains ``phy`` in ``files``, and find its readable part.

        False: no file contains ``phy``; ``part`` is unchanged.
        """
        cdef BufferRef held
        cdef int64_t start = 0, there = 0, end
        map_ = self._mapped(phy, &start, &there)
        if map_ is None:
            file = self.readable(phy)
            if file is None:
                return False
            start, map_, there = file
        held = BufferRef(map_)
        end = start + min(there, <int64_t> held.buffer.len)
        if not start <= phy < end:
            return False
        files.append(held)
        part.start, part.end, part.data = start, end, <const uint8_t *> held.buffer.buf
        return True

    cdef object _mapped(self, int64_t phy, int64_t *start, int64_t *there):
        """Return the map of the file that contains ``phy``, its start, and its readable bytes.

        ``None``: no file contains it, or the file is not mapped yet, or its data waits in memory.
        """
        cdef FilesByStart files = self.files
        cdef PyObject *entry
        cdef FilePositions file
        if files is None or files.by_start is None or files.size <= 0 or phy < 0:
            return None
        start[0] = phy - phy % files.size
        entry = PyDict_GetItemWithError(files.by_start, start[0])
        if entry == NULL or not isinstance(<object> entry, FilePositions):
            return None
        file = <FilePositions> entry
        if file.heap is not None:
            return None
        there[0] = file.wrote
        return file.mapped


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class StoreTimes:
    """Store times of records, for one search; all files that were read stay open until its end."""

    def __cinit__(self, FastLog log not None, int64_t min_phy_offset):
        self.log, self.files, self.last = log, [], 0
        self.min_phy_offset, self.end = min_phy_offset, log.end()
        for at in range(PARTS):
            self.parts[at].start = self.parts[at].end = 0

    cdef int64_t of(self, int64_t phy, int32_t size, bint *is_ordinary) except? -2:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log.

        ``is_ordinary`` becomes false if its file does not contain the record or was truncated: the
        slow path reports the error.
        """
        cdef Part *part = &self.parts[self.last]
        cdef const uint8_t *record
        cdef int64_t found
        cdef int at
        if phy < 0 or phy < self.min_phy_offset or size < MIN_RECORD or phy > self.end - size:
            return -1
        if not part.start <= phy < part.end:
            for at in range(PARTS):
                if self.parts[at].start <= phy < self.parts[at].end:
                    self.last = at
                    break
            else:
                self.last = (self.last + 1) % PARTS
                if not self.log.open(phy, &self.parts[self.last], self.files):
                    is_ordinary[0] = False
                    return -1
            part = &self.parts[self.last]
        if part.end - phy < STAMP_SPAN:
            return -1
        record = part.data + (phy - part.start)
        found = load64(record + HEAD_BYTES + (
            HOST_V6 if load32(record + AT_SYS_FLAG) & BORN_V6 else HOST_V4
        ))
        if log_faults_seen() or (found & 0xFF == 0 and not is_of_whole_map(record)):
            is_ordinary[0] = False
        return found
