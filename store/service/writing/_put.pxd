# The put of plain messages, for compiled code that appends messages encoded elsewhere.

from libc.stdint cimport int64_t

from cqstore.store.log._tail cimport FilePositions, LogTail
from cqstore.store.record._encode cimport FastEncoder
from cqstore.store.record._scratch cimport Encoded, Scratch
from cqstore.store.service.dispatching._columns cimport BatchColumns
from cqstore.store.service.dispatching._waiting cimport InFlight, Waiting
from cqstore.store.service.runtime._flags cimport EnteredFlag, StateFlags

cdef enum:
    MAX_BODY = 1 << 16  # the checksum of a longer one is computed without the GIL

cdef int64_t now_ms() noexcept


cdef class FastPut(FastEncoder):
    cdef Scratch _scratch
    cdef BatchColumns _columns
    cdef LogTail _log
    cdef StateFlags _state
    cdef EnteredFlag _section
    cdef Waiting _pending
    cdef InFlight _dispatcher
    cdef object _locked
    cdef object _appended, _result, _ok, _no_reason, _time, _delays, _encoded
    cdef int64_t _stamp, _due
    cdef Py_ssize_t _max_body, _file_size, _every
    cdef bint _alone, _keys_wanted, _tags_wanted

    cpdef one(self, message)
    cdef object _blank_result(self)
    cdef list _blank_results(self, Py_ssize_t count)
    cdef bint _append_all(
        self, Scratch scratch, int64_t now, object result, list results
    ) except -1
    cdef bint _append(
        self, Scratch scratch, int64_t now, FilePositions file, object target, object result,
        list results,
    ) except -1
    cdef object _fill_result(
        self, object result, Encoded *entry, int64_t phy_offset, object timestamp,
        object queue_offset,
    )
    cdef int _number(self, BatchColumns columns, Encoded *entry) except -1
    cdef int _add_keys(
        self, BatchColumns columns, Encoded *entry, int64_t phy_offset, int64_t now
    ) except -1
