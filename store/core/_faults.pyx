# cython: language_level=3, boundscheck=False, wraparound=False
"""MapGuard, and the handler of bus errors: whether data that was read from a map is valid.

The process has one handler and one table of the log's maps, both in this module, and only this
module includes ``_faults.h``. The packages ``record`` and ``log``, which depend on this one, use
it.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "_faults.h":
    enum: MAX_LOG_MAPS
    void count_faults_in(int64_t *maps)
    int install_bus_handler() nogil
    bint copy_from_map(void *to, const void *start, size_t size) noexcept nogil
    int64_t log_map_register(void *start, size_t size, bint is_writable, int fd) nogil
    void log_map_unregister(int64_t at) nogil
    int64_t log_map_of(const void *address) noexcept nogil
    uint32_t log_map_faults(int64_t at) noexcept nogil
    bint log_map_is_whole(int64_t at) noexcept nogil
    uint8_t touch_pages(const uint8_t *data, size_t size) noexcept nogil

cdef bint _may_handle = False
cdef bint _has_bus_handler = False
cdef void *_guards[MAX_LOG_MAPS]  # by number, without references: each exists as long as its map
cdef object _read_record = None

count_faults_in(&faulty_maps)


def bind_faults(read_record):
    """Set the function that reads a record by a system call: path, descriptor, position, size."""
    global _read_record
    _read_record = read_record


def allow_bus_handler():
    """Make the next map install the handler of bus errors, for the whole process."""
    global _may_handle
    _may_handle = True


cdef bint handle_bus_errors() noexcept:
    """Install the signal handler once, if that is allowed; return whether it is installed."""
    global _has_bus_handler
    if _may_handle and not _has_bus_handler:
        _has_bus_handler = install_bus_handler() == 0
    return _has_bus_handler


@cython.final
@cython.no_gc  # a descriptor cannot be part of a cycle
cdef class MapGuard:
    """Turns a bus error in one map of the log into a result: zeros, and ``has_faults``.

    Without the handler (``allow_bus_handler``) such an error ends the process. Every reader of the
    map must check the guard after the read. This detects a missing page of a truncated file. In the
    page that contains the file's end, the rest reads as zeros without a fault. So if the last byte
    read is zero, the system is asked for the file's size. The map owns its guard and keeps it until
    it is unmapped. Any thread.
    """

    cdef int64_t number, size
    cdef const uint8_t *data
    cdef object path, descriptor

    def __cinit__(self):
        self.number = -1

    def __init__(self, map_, path, descriptor, *, bint is_writable):
        """Register the map of the file that ``descriptor`` keeps open."""
        cdef Py_buffer buffer
        if self.number >= 0:
            raise TypeError("it guards a map already")
        self.path, self.descriptor = path, descriptor
        PyObject_GetBuffer(map_, &buffer, PyBUF_SIMPLE)
        self.data, self.size = <const uint8_t *> buffer.buf, buffer.len
        handle_bus_errors()
        self.number = log_map_register(buffer.buf, buffer.len, is_writable, descriptor.number)
        if self.number >= 0:
            _guards[self.number] = <void *> self
        PyBuffer_Release(&buffer)

    def __dealloc__(self):
        if self.number >= 0:
            _guards[self.number] = NULL
            log_map_unregister(self.number)

    @property
    def is_registered(self):
        """Whether reads of the map can be checked; False: there are too many maps."""
        return self.number >= 0

    @property
    def has_faults(self):
        """Whether a page could not be read or written: no data of the map is valid."""
        return self.number >= 0 and log_map_faults(self.number) != 0

    @property
    def is_whole(self):
        """Whether there was no fault, and the file is as long as the map."""
        return self.number >= 0 and log_map_is_whole(self.number)

    def can_read(self, int64_t position, int64_t size):
        """Return whether all bytes of a range are in the file; may wait for the disk."""
        cdef uint8_t last
        if self.number < 0 or position < 0 or size <= 0 or size > self.size - position:
            return False
        last = touch_pages(self.data + position, size)
        if last != 0 and not log_faults_seen():
            return True
        return log_map_is_whole(self.number)

    cdef object read_again(self, const uint8_t *data, int64_t size):
        """Return the bytes of the file if the map is not valid, else ``None``."""
        if log_map_is_whole(self.number):
            return None
        return _read_record(self.path, self.descriptor, data - self.data, size)


cdef MapGuard guard_of(const uint8_t *data):
    """Return the guard of the map that contains ``data``, or ``None``; the caller owns it."""
    cdef int64_t at = log_map_of(data)
    return None if at < 0 or _guards[at] == NULL else <MapGuard> _guards[at]


cdef object again_if_lost(const uint8_t *data, int64_t size):
    """Return a record's bytes from its file if the map that contains it is not valid."""
    cdef MapGuard guard = guard_of(data)
    return None if guard is None else guard.read_again(data, size)


cdef bint is_of_whole_map(const void *address) noexcept nogil:
    """Return whether data read there is certainly that of the file; true outside the log's maps."""
    cdef int64_t at = log_map_of(address)
    return at < 0 or log_map_is_whole(at)


cdef bint copy_mapped(void *to, const void *start, size_t size) noexcept nogil:
    """Copy from any map; False: a page is missing, or cannot be read."""
    return copy_from_map(to, start, size)
