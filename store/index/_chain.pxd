# Index files as seen by a query by key: the fields of each file, and the chain of a hash.

from libc.stdint cimport int64_t

from cqstore.store.core._bytes cimport fetch_ahead
from cqstore.store.core._layout cimport INDEX_HEADER, INDEX_SLOT
from cqstore.store.core._maps cimport FileMap
from cqstore.store.index._batch cimport KeyColumns
from cqstore.store.record._stored cimport StoredMessage

cdef enum:
    FEW_PLACES = 72  # RocketMQ's limit of a query is 64


cdef struct Chain:
    # The search of a chain, see `ChainFile.walk`, and the phy offsets found, newest first.
    int64_t max_num, begin, end, began, drained, after
    bint has_before, is_checked
    Py_ssize_t count, room
    int64_t *places
    int64_t *many  # to free; NULL: `few` is sufficient
    int64_t few[FEW_PLACES]


cdef inline void begin_chain(Chain *chain, int64_t max_num, int64_t begin, int64_t end) noexcept:
    chain.max_num, chain.begin, chain.end = max_num, begin, end
    chain.count, chain.room, chain.places, chain.many = 0, FEW_PLACES, chain.few, NULL
    chain.has_before, chain.is_checked = False, False


cdef class ChainFile:
    cdef bint is_read_only
    cdef int64_t begin, end  # store times, ms
    cdef int64_t slots, entries
    cdef object shape  # both numbers as a Python object
    cdef KeyColumns pending
    cdef int64_t drained  # number of the entry that the first of the pending keys will become
    cdef public FileMap mapped


cdef class ChainFiles:
    cdef bint is_closed
    cdef public tuple files


cdef inline void slot_ahead(ChainFile file, int64_t wanted) noexcept:
    """Prefetch the slot of a hash, which the search would wait for."""
    cdef FileMap mapped = file.mapped
    if mapped is not None and mapped.data != NULL and file.slots > 0:
        fetch_ahead(mapped.data + INDEX_HEADER + INDEX_SLOT * (wanted % file.slots))


cdef int chain_places(ChainFile file, FileMap mapped, int64_t wanted, Chain *chain) except -2 nogil
cdef int has_key(
    StoredMessage message, const char *topic, Py_ssize_t topic_size, const char *key,
    Py_ssize_t key_size,
) noexcept
