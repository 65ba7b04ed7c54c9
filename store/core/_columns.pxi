# The columns of an ``IndexBatch``, filled row by row, and the batch of units beside it.

from cpython cimport array
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from store.queue._batch cimport UnitColumns

cdef extern from *:
    ctypedef struct ArrayObject "arrayobject":
        int ob_exports  # views that somebody holds


cdef class _Columns:
    """The batches that rows were added to last; whoever has the batches may add others between."""

    cdef UnitColumns units
    cdef object keys
    cdef list key_topics, key_names
    cdef array.array key_phys, key_times
    cdef int64_t batch  # counts the batches; the first is 1

    cdef _Columns of(self, UnitColumns units, object keys):
        if self.units is not units or self.keys is not keys:
            self.units, self.keys = units, keys
            self.batch += 1
            self.key_topics, self.key_phys = keys.topics, keys.phy_offsets
            self.key_times, self.key_names = keys.store_timestamps, keys.keys
        return self

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
