# The batches of units and of keys that wait, for compiled code that adds records to them.

from libc.stdint cimport int64_t

from cqstore.store.index._batch cimport KeyColumns, Topic
from cqstore.store.queue._batch cimport UnitColumns
from cqstore.store.record._known cimport KnownKey, Value


cdef class BatchColumns:
    cdef UnitColumns units
    cdef KeyColumns keys
    cdef int64_t batch  # number of the batch; the first is 1
    cdef object topic, topic_held  # of the keys added last, and the holder of its bytes
    cdef Topic topic_found

    cdef BatchColumns of(self, UnitColumns units, KeyColumns keys)
    cdef int add_record(
        self, object topic, const Value *uniq_key, const Value *words, const KnownKey *tags,
        int64_t phy_offset, int64_t timestamp,
    ) except -1
