# What compiled code of the packages above may use of `_reads.pyx`; what it does stands there.

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from store.core._bytes cimport fetch_ahead
from store.core._layout cimport AT_SYS_FLAG, HEAD_BYTES, HOST_V4
from store.log._tail cimport FilesByStart, LogTail

cdef enum:
    PARTS = 4


cdef struct Part:
    # What may be read of a file of the log: offsets of the log, and the byte at `start`.
    int64_t start, end
    const uint8_t *data


@cython.final
cdef class BufferRef:
    cdef Py_buffer buffer
    cdef object view

    cdef object slice(self, Py_ssize_t start, Py_ssize_t end)


cdef bint map_faults_seen() noexcept nogil
cdef bint in_whole_map(const void *address) noexcept nogil


cdef struct Places:
    # Where the parts of a record lie, bytes from its start; all within `size`.
    int32_t size, stored, body, body_size, topic, topic_end, properties


cdef bint parse_record(const uint8_t *data, int64_t size, Places *places) noexcept nogil


cdef inline bint ends_in_file(const uint8_t *data, const Places *places) noexcept nogil:
    """Return whether the record is not cut: where a file was cut all behind it reads as zeros.

    False: it may be sound still, for a record may end in a zero.
    """
    return data[places.size - 1] != 0 or (
        places.properties == places.size and data[places.topic_end - 1] != 0
    )


cdef class StoredMessage:
    cdef BufferRef held
    cdef const uint8_t *data  # of the record; the offsets below lie within its `size`
    cdef Places places
    cdef object _record, _topic, _body, _properties
    cdef BufferRef former  # other threads may be reading it

    cdef bint _find(self, BufferRef held, record) except -1
    cdef const uint8_t *_start(self) except NULL
    cdef bint _is_read(self) except -1
    cdef bint _replace(self) except -1


cdef class FileMap:
    cdef int fd
    cdef object owner
    cdef const uint8_t *data
    cdef int64_t size
    cdef uint8_t *seen  # a bit for each page

    cdef bint ends_before(self, int64_t position) noexcept nogil
    cdef bint read(self, void *to, int64_t size, int64_t position) noexcept nogil
    cdef bint read_again(self, void *to, int64_t size, int64_t position) noexcept nogil
    cdef void saw(self, int64_t size, int64_t position) noexcept


cdef class PlainLog:
    cdef object log, readable
    cdef LogTail tail
    cdef FilesByStart files

    cdef int64_t end(self) except? -2
    cdef int64_t least(self) except? -2
    cdef bint open(self, int64_t phy, Part *part, list files) except -1
    cdef object _mapped(self, int64_t phy, int64_t *start, int64_t *there)


@cython.final
cdef class StoreTimes:
    cdef PlainLog log
    cdef list files
    cdef Part parts[PARTS]
    cdef int64_t least, end
    cdef int last

    cdef int64_t of(self, int64_t phy, int32_t size, bint *is_plain) except? -2

    cdef inline void ahead(self, int64_t phy) noexcept:
        """Let memory fetch what ``of`` will read there, if the file is the one of last time."""
        cdef Part *part = &self.parts[self.last]
        if part.start <= phy < part.end:
            fetch_ahead(part.data + (phy - part.start) + AT_SYS_FLAG)
            fetch_ahead(part.data + (phy - part.start) + HEAD_BYTES + HOST_V4)
