# The columns of a ``UnitBatch`` and of an ``IndexBatch``, filled row by row.

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t

cdef extern from "_record.h":
    char *put32(char *at, uint32_t value)
    char *put64(char *at, unsigned long long value)

cdef extern from *:
    ctypedef struct ArrayObject "arrayobject":
        int ob_exports  # views that somebody holds


cdef class _Columns:
    """The batches that rows were added to last; whoever has the batches may add others between."""

    cdef object queue_key, units, keys, packed
    cdef dict index_of
    cdef list queues, key_topics, key_names
    cdef array.array queue_index, queue_offset, key_phys, key_times
    cdef Py_ssize_t at
    cdef int64_t batch  # counts the batches; the first is 1

    def __init__(self, queue_key):
        self.queue_key = queue_key

    cdef _Columns of(self, object units, object keys):
        if self.units is not units or self.keys is not keys:
            self.units, self.keys = units, keys
            self.batch += 1
            self.index_of, self.queues = units.index_of, units.queues
            self.queue_index, self.queue_offset = units.queue_index, units.queue_offset
            self.packed = units.units
            self.key_topics, self.key_phys = keys.topics, keys.phy_offsets
            self.key_times, self.key_names = keys.store_timestamps, keys.keys
        return self

    cdef Py_ssize_t waiting(self, object units) except -1:
        """Return how many units ``units`` has."""
        return len(self.queue_index) if units is self.units else len(units)

    cdef int grow(self, Py_ssize_t more) except -1:
        """Make room for so many units, all of which are added next."""
        self.at = len(self.queue_index)
        resize(self.queue_index, self.at + more)
        resize(self.queue_offset, self.at + more)
        PyByteArray_Resize(self.packed, (self.at + more) * UNIT_BYTES)
        return 0

    cdef int index(self, tuple key) except -1:
        """Return the number of a queue in the batch, which may be a new one."""
        cdef PyObject *known = PyDict_GetItemWithError(self.index_of, key)
        cdef int index
        if known != NULL:
            return <object> known
        index = len(self.queues)
        self.queues.append(_new(self.queue_key, key))
        self.index_of[key] = index
        return index

    cdef int add_at(
        self, int index, int64_t offset, int64_t phy_offset, int64_t size, int64_t tags_code,
        int64_t timestamp,
    ) except -1:
        """Add a unit of the queue of that number where there is room, see ``UnitBatch.add``."""
        cdef char *out
        self.queue_index.data.as_ints[self.at] = index
        self.queue_offset.data.as_longlongs[self.at] = offset
        out = put64(PyByteArray_AS_STRING(self.packed) + self.at * UNIT_BYTES, phy_offset)
        out = put64(put32(out, <uint32_t> size), <unsigned long long> tags_code)
        put64(out, timestamp)
        self.at += 1
        return 0

    cdef int add_keys(
        self, object topic, object uniq_key, object words, int64_t phy_offset, int64_t timestamp
    ) except -1:
        """Add the keys of a record but its tags, see ``IndexBatch.add_record``; ``None``: there is none."""
        if uniq_key is not None:
            self.add_key(topic, uniq_key, phy_offset, timestamp)
        if words is not None:
            for word in (<str> words).split(" "):
                if word:
                    self.add_key(topic, word, phy_offset, timestamp)
        return 0

    cdef int add_key(
        self, object topic, object key, int64_t phy_offset, int64_t timestamp
    ) except -1:
        cdef Py_ssize_t at = len(self.key_phys)
        self.key_topics.append(topic)
        resize(self.key_phys, at + 1)
        self.key_phys.data.as_longlongs[at] = phy_offset
        resize(self.key_times, at + 1)
        self.key_times.data.as_longlongs[at] = timestamp
        self.key_names.append(key)  # last: readers go by it
        return 0


cdef int resize(array.array column, Py_ssize_t size) except -1:
    """Let a column have so many numbers; what somebody has a view of stays where it is."""
    if (<ArrayObject *> <PyObject *> column).ob_exports:
        raise BufferError("an array of which somebody holds a view cannot grow")
    return array.resize_smart(column, size)
