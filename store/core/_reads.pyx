# cython: language_level=3, boundscheck=False, wraparound=False
"""The reading side of the compiled core: messages, pulls, searches by time.

What is not plain goes the long way, in Python, untouched: that one says what is right, and has the
words for what is wrong. Nothing here trusts what lies on disk: every read is bounded by the object it
reads, and what the bounds were made of is read once.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

from store.core._bytes cimport fetch_ahead, load16, load32, load64
from store.core._crc32 cimport crc_of, crc_prepare
from store.core._layout cimport *
from store.log._tail cimport FilePositions, FilesByStart, LogTail

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef enum:
    NAME_END = 1
    VALUE_END = 2

_new = tuple.__new__

crc_prepare()

include "_held.pxi"
include "_faults.pxi"
include "_messages.pxi"
include "_results.pxi"
include "_log.pxi"
include "_meters.pxi"
include "_ready.pxi"
include "_pulls.pxi"
include "_maps.pxi"
include "_estimates.pxi"
