# cython: language_level=3, boundscheck=False, wraparound=False
"""UnitColumns: units on their way into the queues, as columns of numbers that compiled code fills.

What Python asks of a batch is in ``store.queue.units``. Under the interpreter's lock a unit is there
whole or not at all, whatever interrupts whoever adds it.
"""

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from store.core._layout cimport UNIT_BYTES

cdef extern from "_record.h":
    char *put32(char *at, uint32_t value)
    char *put64(char *at, uint64_t value)

cdef enum:
    LEAST_ROOM = 256  # bytes
    NUMBERED = sizeof(int32_t)
    PLACED = sizeof(int64_t)

cdef const char *NOTHING = ""
cdef char *BYTES = "B"
_new = tuple.__new__
cdef object _queue_key = tuple


def bind_queue_key(queue_key):
    """Take the named tuple of topic and queue id."""
    global _queue_key
    _queue_key = queue_key


cdef class Block:
    """Memory of a column; views of it keep it where it is."""

    def __dealloc__(self):
        free(self.data)


cdef class Column:
    """Rows of so many bytes each, one behind the other; shows its bytes, read-only, to whoever asks.

    It grows also while somebody has a view: that one goes on showing what was there. With ``len``
    and by number it has numbers of the machine's own order; bytes where a row is neither.
    """

    def __cinit__(self, Py_ssize_t item_bytes):
        if item_bytes <= 0:
            raise ValueError("a row has bytes")
        self.item_bytes, self.block = item_bytes, Block()

    cdef char *grow(self, Py_ssize_t more) except NULL:
        """Return where so many rows lie that are added; the caller fills them."""
        cdef Py_ssize_t at = self.used * self.item_bytes
        cdef Py_ssize_t wanted = at + more * self.item_bytes
        cdef Py_ssize_t room
        cdef Block block = self.block, other
        cdef char *data
        if wanted > block.room:
            room = max(<Py_ssize_t> LEAST_ROOM, wanted + (wanted >> 1))
            if Py_REFCNT(block) > 2:  # this line's and the column's are two
                other = Block()
                other.data = <char *> malloc(room)
                if other.data == NULL:
                    raise MemoryError
                memcpy(other.data, block.data, at)
                other.room, self.block, block = room, other, other
            else:
                data = <char *> realloc(block.data, room)
                if data == NULL:
                    raise MemoryError
                block.data, block.room = data, room
        self.used += more
        return block.data + at

    def extend(self, data):
        """Add rows, given as the bytes of them all."""
        cdef Py_buffer rows
        cdef char *to
        PyObject_GetBuffer(data, &rows, PyBUF_SIMPLE)
        try:
            if rows.len % self.item_bytes:
                raise ValueError(f"{rows.len} bytes are no rows of {self.item_bytes}")
            if rows.len:
                to = self.grow(rows.len // self.item_bytes)
                memcpy(to, rows.buf, rows.len)
        finally:
            PyBuffer_Release(&rows)

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


cdef class UnitColumns:
    """Units as columns, see ``UnitBatch``."""

    def __cinit__(self):
        self.queues, self.index_of = [], {}
        self.queue_index, self.queue_offset = Column(NUMBERED), Column(PLACED)
        self.units = Column(UNIT_BYTES)

    def __len__(self):
        return self.count

    cdef int index(self, tuple key) except -1:
        """Return the number of a queue in the batch, which may be a new one."""
        cdef PyObject *known = PyDict_GetItemWithError(self.index_of, key)
        cdef int number
        if known != NULL:
            return <object> known
        number = len(self.queues)
        self.queues.append(_new(_queue_key, key))
        self.index_of[key] = number
        return number

    cdef int make_room(self, Py_ssize_t more) except -1:
        """Make room for so many units, all of which are added next, or none ever."""
        self.queue_index.grow(more)
        self.queue_offset.grow(more)
        self.units.grow(more)
        return 0

    cdef void add_at(
        self, int32_t index, int64_t queue_offset, int64_t phy_offset, int32_t size,
        int64_t tags_code, int64_t store_timestamp,
    ) noexcept:
        """Add a unit of the queue of that number, where room was made."""
        cdef char *out = self.units.block.data + self.count * UNIT_BYTES
        (<int32_t *> self.queue_index.block.data)[self.count] = index
        (<int64_t *> self.queue_offset.block.data)[self.count] = queue_offset
        out = put64(put32(put64(out, phy_offset), <uint32_t> size), tags_code)
        put64(out, store_timestamp)
        self.count += 1

    def add(
        self, key, int64_t queue_offset, int64_t phy_offset, int32_t size, int64_t tags_code,
        int64_t store_timestamp,
    ):
        """Append one unit for queue ``key`` (topic, queue id); does not move ``end_phy_offset``."""
        if not isinstance(key, tuple):
            raise TypeError("a queue is topic and queue id")
        cdef int number = self.index(<tuple> key)
        self.make_room(1)
        self.add_at(number, queue_offset, phy_offset, size, tags_code, store_timestamp)

    def add_list(self, keys, queue_offsets, phy_offsets, sizes, tags_codes, store_timestamps):
        """Append one unit a row of the columns; as ``add`` each."""
        for row in zip(
            keys, queue_offsets, phy_offsets, sizes, tags_codes, store_timestamps, strict=True
        ):
            self.add(*row)

    def take(self, queues, queue_index, queue_offset, units):
        """Take whole columns into an empty batch, the last three as the bytes of their rows."""
        if self.count or len(self.queues):
            raise ValueError("the batch has units")
        self.queue_index.extend(queue_index)
        self.queue_offset.extend(queue_offset)
        self.units.extend(units)
        if not self.queue_index.used == self.queue_offset.used == self.units.used:
            raise ValueError("the columns have different lengths")
        self.queues.extend(queues)
        self.index_of.update({queue: at for at, queue in enumerate(queues)})
        self.count = self.units.used
