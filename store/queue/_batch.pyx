# cython: language_level=3, boundscheck=False, wraparound=False
"""UnitColumns: units that are being added to queues, as columns of numbers filled by compiled code.

The Python methods of a batch are in ``cqstore.store.queue.units``. Under the GIL a unit is added
completely or not at all, whatever interrupts the caller that adds it.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cqstore.store.core._bytes cimport put32, put64
from cqstore.store.core._column cimport NUMBERED, PLACED, Column
from cqstore.store.core._layout cimport UNIT_BYTES

_new = tuple.__new__
cdef object _queue_key = tuple


def bind_queue_key(queue_key):
    """Set the named tuple class of topic and queue id."""
    global _queue_key
    _queue_key = queue_key


cdef class UnitColumns:
    """Units as columns, see ``UnitBatch``."""

    def __cinit__(self):
        self.queues, self.index_of = [], {}
        self.queue_index, self.queue_offset = Column(NUMBERED), Column(PLACED)
        self.units = Column(UNIT_BYTES)

    def __len__(self):
        return self.units.used

    cdef int index(self, tuple key) except -1:
        """Return the number of a queue in the batch; a new queue gets the next number.

        For a ``key`` of the bound class, no object is created that the garbage collector tracks.
        """
        cdef PyObject *known = PyDict_GetItemWithError(self.index_of, key)
        cdef int number
        if known != NULL:
            return <object> known
        number = len(self.queues)
        self.queues.append(key if type(key) is _queue_key else _new(_queue_key, key))
        self.index_of[key] = number
        return number

    cdef int make_room(self, Py_ssize_t more) except -1:
        """Allocate space for ``more`` units; the caller adds them next, or never."""
        self.queue_index.room(more)
        self.queue_offset.room(more)
        self.units.room(more)
        return 0

    cdef void add_at(
        self, int32_t index, int64_t queue_offset, int64_t phy_offset, int32_t size,
        int64_t tags_code, int64_t store_timestamp,
    ) noexcept:
        """Add a unit to the queue with this number, in space that is allocated already."""
        cdef Py_ssize_t at = self.units.used
        cdef char *out = self.units.block.data + at * UNIT_BYTES
        (<int32_t *> self.queue_index.block.data)[at] = index
        (<int64_t *> self.queue_offset.block.data)[at] = queue_offset
        out = put64(put32(put64(out, phy_offset), <uint32_t> size), tags_code)
        put64(out, store_timestamp)
        self.queue_index.used = self.queue_offset.used = self.units.used = at + 1

    def add(
        self, key, int64_t queue_offset, int64_t phy_offset, int32_t size, int64_t tags_code,
        int64_t store_timestamp,
    ):
        """Append one unit to queue ``key`` (topic, queue id); ``end_phy_offset`` is unchanged."""
        if not isinstance(key, tuple):
            raise TypeError("a queue key must be a tuple of topic and queue id")
        cdef int number = self.index(<tuple> key)
        self.make_room(1)
        self.add_at(number, queue_offset, phy_offset, size, tags_code, store_timestamp)

    def extend(self, UnitColumns other not None):
        """Append all units of ``other``, or none; ``end_phy_offset`` becomes that of ``other``."""
        cdef Py_ssize_t at, count = other.units.used, first = self.units.used
        cdef int32_t *into
        cdef const int32_t *numbers
        cdef int32_t *chosen
        if count:
            self.make_room(count)
            chosen = <int32_t *> malloc(len(other.queues) * sizeof(int32_t))
            if chosen == NULL:
                raise MemoryError
            try:
                for at in range(len(other.queues)):
                    chosen[at] = self.index(<tuple> other.queues[at])
                into = <int32_t *> self.queue_index.block.data + first
                numbers = <const int32_t *> other.queue_index.block.data
                for at in range(count):
                    into[at] = chosen[numbers[at]]
            finally:
                free(chosen)
            memcpy(
                <int64_t *> self.queue_offset.block.data + first, other.queue_offset.block.data,
                count * PLACED,
            )
            memcpy(
                self.units.block.data + first * UNIT_BYTES, other.units.block.data,
                count * UNIT_BYTES,
            )
            self.queue_index.used = self.queue_offset.used = self.units.used = first + count
        self.end_phy_offset = other.end_phy_offset

    def following(self, list next_offsets not None):
        """Return the next offset of each queue after its units here, and the row with a gap.

        ``next_offsets``: of each queue before these units; 0: it may begin anywhere. An existing
        offset begins a new incarnation. The row is the first whose offset leaves a gap; -1: there
        is no gap.
        """
        cdef Py_ssize_t at, queues = len(self.queues), gap = -1
        cdef int64_t *nexts
        cdef int64_t offset
        cdef int32_t number
        if len(next_offsets) != queues:
            raise ValueError(f"expected {queues} next offsets, found {len(next_offsets)}")
        nexts = <int64_t *> malloc((queues + 1) * sizeof(int64_t))
        if nexts == NULL:
            raise MemoryError
        try:
            for at in range(queues):
                nexts[at] = next_offsets[at]
            for at in range(self.units.used):
                number = (<const int32_t *> self.queue_index.block.data)[at]
                offset = (<const int64_t *> self.queue_offset.block.data)[at]
                if 0 < nexts[number] < offset:
                    gap = at
                    break
                nexts[number] = offset + 1
            return [nexts[at] for at in range(queues)], gap
        finally:
            free(nexts)

    def take(
        self, queues, bytes queue_index not None, bytes queue_offset not None, bytes units not None
    ):
        """Take whole columns into an empty batch, the last three as the bytes of their rows."""
        if self.units.used or len(self.queues):
            raise ValueError("the batch is not empty")
        cdef Py_ssize_t count = len(units) // UNIT_BYTES
        if (len(queue_index), len(queue_offset), len(units)) != (
            count * NUMBERED, count * PLACED, count * UNIT_BYTES
        ):
            raise ValueError("the columns have different lengths")
        self.queues.extend(queues)
        self.index_of.update({queue: at for at, queue in enumerate(queues)})
        self.queue_index.add(queue_index)
        self.queue_offset.add(queue_offset)
        self.units.add(units)  # last: the number of units is the number of its rows
