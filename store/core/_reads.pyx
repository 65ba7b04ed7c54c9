# cython: language_level=3, boundscheck=False, wraparound=False
"""Queries by key: chains of index files, and the records that they lead to.

What is not plain goes the long way, in Python, untouched: that one says what is right, and has the
words for what is wrong. Nothing here trusts what lies on disk: every read is bounded by the object it
reads, and what the bounds were made of is read once.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from store.core._arguments cimport PyLong_AsLongLongAndOverflow
from store.core._bytes cimport load32, load64
from store.core._faults cimport is_of_whole_map, log_faults_seen
from store.core._hashes cimport HASH_SIGN, hash_on, without_sign
from store.core._layout cimport *
from store.core._maps cimport FileMap
from store.core._slots cimport *
from store.log._log cimport Part, PlainLog
from store.record._parse cimport ends_in_file, parse_record
from store.record._stored cimport StoredMessage

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    NAME_END = 1
    VALUE_END = 2

include "_queries.pxi"
