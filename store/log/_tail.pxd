# The end of a log and its files, for compiled code that reads and sets them.

from libc.stdint cimport int64_t


cdef class FilePositions:
    cdef int64_t start, wrote
    cdef public object heap, mapped


cdef class FilesByStart:
    cdef int64_t size
    cdef public dict by_start


cdef class LogTail:
    cdef int64_t at, appended
    cdef public FilePositions current, prepared
