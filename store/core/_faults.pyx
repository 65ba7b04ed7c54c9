# cython: language_level=3, boundscheck=False, wraparound=False
"""MapGuard, and the handler of bus errors: what of a map may be believed.

The process has one handler and one table of the log's maps, so they are those of this module, and
``_faults.h`` is included here alone. The packages of records and of the log, both above, use it.
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
cdef void *_guards[MAX_LOG_MAPS]  # by number, not held: each is there as long as its map
cdef object _read_record = None

count_faults_in(&faulty_maps)


def bind_faults(read_record):
    """Take what reads a record by a system call: path, descriptor, position and size; see LogMap."""
    global _read_record
    _read_record = read_record


def allow_bus_handler():
    """Have the next map install the handler of bus errors, for the whole process."""
    global _may_handle
    _may_handle = True


cdef bint handle_bus_errors() noexcept:
    """Install the signal's handler, once, where that was allowed; return whether it is there."""
    global _has_bus_handler
    if _may_handle and not _has_bus_handler:
        _has_bus_handler = install_bus_handler() == 0
    return _has_bus_handler


@cython.final
@cython.no_gc  # a descriptor leads nowhere
cdef class MapGuard:
    """Makes of a bus error in one map of the log an answer: zeros, and ``has_faults``.

    Without the handler (``allow_bus_handler``) such an error ends the process. Whatever is read
    through the map has to ask behind the read. A page of a file that was cut is met so; of the page
    in which the file ends the rest reads as zeros without a fault. So where the last byte of what was
    read is zero the system is asked for the file's size. The map owns its guard and keeps it until it
    is unmapped. Any thread.
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
        """Whether what is read there can be asked about; False: there are too many maps."""
        return self.number >= 0

    @property
    def has_faults(self):
        """Whether a page could not be read or written: nothing of the map is to be believed."""
        return self.number >= 0 and log_map_faults(self.number) != 0

    @property
    def is_whole(self):
        """Whether there was no fault, and the file is as long as the map."""
        return self.number >= 0 and log_map_is_whole(self.number)

    def can_read(self, int64_t position, int64_t size):
        """Return whether all bytes of a span are the file's own; may wait for the disk."""
        cdef uint8_t last
        if self.number < 0 or position < 0 or size <= 0 or size > self.size - position:
            return False
        last = touch_pages(self.data + position, size)
        if last != 0 and not log_faults_seen():
            return True
        return log_map_is_whole(self.number)

    cdef object read_again(self, const uint8_t *data, int64_t size):
        """Return the bytes that the file has there if the map cannot be believed, else ``None``."""
        if log_map_is_whole(self.number):
            return None
        return _read_record(self.path, self.descriptor, data - self.data, size)


cdef MapGuard guard_of(const uint8_t *data):
    """Return the guard of the map that ``data`` lies in, which the caller holds; else ``None``."""
    cdef int64_t at = log_map_of(data)
    return None if at < 0 or _guards[at] == NULL else <MapGuard> _guards[at]


cdef object again_if_lost(const uint8_t *data, int64_t size):
    """Return a record as its file has it if the map that it lies in cannot be believed."""
    cdef MapGuard guard = guard_of(data)
    return None if guard is None else guard.read_again(data, size)


cdef bint is_of_whole_map(const void *address) noexcept nogil:
    """Return whether what was read there is surely the file's own; what no map of the log holds is."""
    cdef int64_t at = log_map_of(address)
    return at < 0 or log_map_is_whole(at)


cdef bint copy_mapped(void *to, const void *start, size_t size) noexcept nogil:
    """Copy from any map; False: a page was not there, or cannot be read."""
    return copy_from_map(to, start, size)
