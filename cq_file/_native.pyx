# cython: language_level=3, boundscheck=False, wraparound=False
"""Queues in files, compiled: units go to their ends, and are read and searched.

What is not plain goes the long way, in Python, untouched, as in ``store.core``, which this stands on.
Nothing here trusts a size that it was given, nor what lies on disk: every read is bounded by the
object it reads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from posix.unistd cimport pread, pwrite

from store.core._buffer cimport BufferRef
from store.core._bytes cimport load32, load64
from store.core._layout cimport AT_SIZE_OF_UNIT, UNIT_BYTES, UNIT_OF_FILES
from store.core._maps cimport FileMap
from store.core._slots cimport Py_False, in_slot, set_slot, slot_of_class, whole_number
from store.log._log cimport PlainLog, StoreTimes

cdef int64_t MAX_TIME = <int64_t> 1 << 62  # ms; for a later one Python searches

include "_appends.pxi"
include "_units.pxi"
