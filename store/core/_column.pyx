# cython: language_level=3, boundscheck=False, wraparound=False
"""Column: rows of bytes that compiled code adds, and that Python reads.

The batches of units and of keys consist of columns. Under the GIL a row is added completely or not
at all, whatever interrupts the caller that adds it.
"""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

cdef enum:
    MIN_ROOM = 256  # bytes

cdef const char *NOTHING = ""
cdef char *BYTES = "B"


cdef class Block:
    """Memory of a column; views keep it alive and in place."""

    def __dealloc__(self):
        free(self.data)


cdef class Column:
    """Rows of ``item_bytes`` bytes each, consecutive; exported as a read-only buffer.

    It also grows while a view is exported: that view keeps showing the rows it had. ``len`` and
    indexing work, with numbers in the machine's byte order, or bytes if a row is not a number. Only
    compiled code adds: the owner of several columns relies on their lengths.
    """

    def __cinit__(self, Py_ssize_t item_bytes):
        if item_bytes <= 0:
            raise ValueError("a row has bytes")
        self.item_bytes, self.block = item_bytes, Block()

    cdef char *room(self, Py_ssize_t more) except NULL:
        """Allocate space for ``more`` rows; return the address of the first.

        The caller fills them, and then increases ``used``, which makes them visible.
        """
        cdef Py_ssize_t at = self.used * self.item_bytes
        cdef Py_ssize_t wanted = at + more * self.item_bytes
        if wanted > self.block.room or self.block.data == NULL:
            self._grow(at, wanted)
        return self.block.data + at

    cdef int _grow(self, Py_ssize_t used, Py_ssize_t wanted) except -1:
        cdef Py_ssize_t room = max(<Py_ssize_t> MIN_ROOM, wanted + (wanted >> 1))
        cdef Block block = self.block, other
        cdef char *data
        if Py_REFCNT(block) > 2:  # the references of this line and of the column are two
            other = Block()
            other.data = <char *> malloc(room)
            if other.data == NULL:
                raise MemoryError
            if used:
                memcpy(other.data, block.data, used)
            other.room, self.block = room, other
        else:
            data = <char *> realloc(block.data, room)
            if data == NULL:
                raise MemoryError
            block.data, block.room = data, room
        return 0

    cdef int add(self, bytes rows) except -1:
        """Add complete rows."""
        memcpy(self.room(len(rows) // self.item_bytes), PyBytes_AS_STRING(rows), len(rows))
        self.used += len(rows) // self.item_bytes
        return 0

    def __len__(self):
        return self.used

    def __getitem__(self, Py_ssize_t row):
        cdef char *at
        if row < 0:
            row += self.used
        if not 0 <= row < self.used:
            raise IndexError("no such row")
        at = self.block.data + row * self.item_bytes
        if self.item_bytes == NUMBERED:
            return (<int32_t *> at)[0]
        if self.item_bytes == PLACED:
            return (<int64_t *> at)[0]
        return at[:self.item_bytes]

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("a column is only looked at")
        cdef const char *data = self.block.data if self.block.data != NULL else NOTHING
        buffer.buf, buffer.obj = <void *> data, self.block
        buffer.len, buffer.itemsize, buffer.ndim = self.used * self.item_bytes, 1, 1
        buffer.readonly, buffer.format = 1, BYTES if flags & PyBUF_FORMAT else NULL
        buffer.shape = &buffer.len if flags & PyBUF_ND == PyBUF_ND else NULL
        buffer.strides = &buffer.itemsize if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL
