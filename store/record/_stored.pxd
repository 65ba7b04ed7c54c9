# Messages that are read, for compiled code that creates them from records.

from libc.stdint cimport uint8_t

from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.record._parse cimport Found, Places


cdef class StoredMessage:
    cdef BufferRef held
    cdef const uint8_t *data  # of the record; the positions in `places` are within its size
    cdef Places places
    cdef object _record, _topic, _body, _properties
    cdef BufferRef former  # other threads may be reading it

    cdef bint _find(self, BufferRef held, record) except -1
    cdef const uint8_t *_start(self) except NULL
    cdef bint _replace(self) except -1


cdef list messages_of(list files, const Found *found, Py_ssize_t count)
