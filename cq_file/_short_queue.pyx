# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads the units of a short queue with one open, one read and one search for later data.

In a store with many queues, most have one file whose units fit into its first page. All other
files, and those with irregular content, are left to the slow path in Python. No size and no value
on disk is trusted: every read is bounded by the page that it fills.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset, strlen
from posix.unistd cimport close, pread

from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, UNIT_BYTES, UNIT_OF_FILES

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object)


cdef bytes path_bytes(str path):
    """Return a path as the system takes it; ``None``: it has a NUL."""
    cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
    return encoded if <Py_ssize_t> strlen(PyBytes_AS_STRING(encoded)) == len(encoded) else None


cdef bint units_of_page(
    const uint8_t *page, Py_ssize_t size, int64_t file_size, int64_t max_phy_offset,
    ShortUnits *found
) noexcept nogil:
    """Find the units of a short queue in the first page of its file; return whether it is one."""
    cdef Py_ssize_t at = 0, row
    cdef int64_t phy, last = -1
    cdef int32_t length = 0
    while at + UNIT_OF_FILES <= size:
        phy = load64(page + at)
        if not last < phy < max_phy_offset or load32(page + at + AT_SIZE_OF_UNIT) <= 0:
            break
        if phy == 0 and load32(page + at + AT_SIZE_OF_UNIT) == INT32_MAX:
            return False  # maybe a pre-blank
        last, length = phy, load32(page + at + AT_SIZE_OF_UNIT)
        at += UNIT_OF_FILES
    for row in range(at, size):
        if page[row] != 0:
            return False
    if at == 0 or (at + UNIT_OF_FILES > size and size < file_size):
        return False
    found.count, found.last_phy = at // UNIT_OF_FILES, last
    found.end_phy = last + length if last <= INT64_MAX - length else INT64_MAX
    return True


cdef bytes _packed_rows(const uint8_t *units, Py_ssize_t count):
    """Return units of a file as packed ``QueueUnit``, without store timestamps."""
    cdef bytes rows = PyBytes_FromStringAndSize(NULL, count * UNIT_BYTES)
    cdef char *to = PyBytes_AS_STRING(rows)
    cdef Py_ssize_t at
    for at in range(count):
        memcpy(to, units, UNIT_OF_FILES)
        memset(to + UNIT_OF_FILES, 0xFF, UNIT_BYTES - UNIT_OF_FILES)  # NO_TIMESTAMP
        to += UNIT_BYTES
        units += UNIT_OF_FILES
    return rows


cdef bint _read_short(str path, int64_t file_size, int64_t max_phy_offset, uint8_t *page,
                      ShortUnits *found) except -1:
    """Read a short queue into ``page``; return whether it is one."""
    cdef Py_ssize_t size = -1
    cdef stat status
    cdef int file
    cdef bytes encoded = path_bytes(path)
    if encoded is None or file_size < UNIT_OF_FILES:
        return False
    cdef const char *name = PyBytes_AS_STRING(encoded)
    with nogil:
        file = open_file(AT_FDCWD, name, 0, &status)
        if file >= 0:
            if status.st_size == file_size:
                size = read_only_page(file, page, PAGE, file_size)
            close(file)
    return size >= 0 and units_of_page(page, size, file_size, max_phy_offset, found)


def short_queue(str path not None, int64_t file_size, int64_t max_phy_offset):
    """Return the units, the last phy offset and the end of its record; ``None``: not a short queue.

    A short queue has units from the start of its only file on, in order, below ``max_phy_offset``,
    no pre-blanks, and nothing but zeros after them; its last unit is before the end of the page,
    or the file ends there.
    """
    cdef uint8_t page[PAGE]
    cdef ShortUnits found
    if not _read_short(path, file_size, max_phy_offset, page, &found):
        return None
    units = PyBytes_FromStringAndSize(<char *> page, found.count * UNIT_OF_FILES)
    return units, found.last_phy, found.end_phy


def short_rows(str path not None, int64_t file_size, int64_t max_phy_offset):
    """Return the units of a short queue as packed rows without store timestamps, or ``None``."""
    cdef uint8_t page[PAGE]
    cdef ShortUnits found
    if not _read_short(path, file_size, max_phy_offset, page, &found):
        return None
    return _packed_rows(page, found.count)


def unit_rows(
    str path not None, int64_t position, Py_ssize_t count, int64_t low_phy, int64_t high_phy
):
    """Return ``count`` units of a file as packed rows, and how many lead outside the log.

    The log is [``low_phy``, ``high_phy``). The rows have no store timestamps. ``None``: they do not
    fit into a page, cannot be read, or one may not be a unit.
    """
    cdef uint8_t page[PAGE]
    cdef Py_ssize_t size = -1, at, outside = 0
    cdef int64_t phy
    cdef int32_t length
    cdef stat status
    cdef int file
    cdef bytes encoded = path_bytes(path)
    if encoded is None or position < 0 or not 0 < count <= PAGE // UNIT_OF_FILES:
        return None
    cdef const char *name = PyBytes_AS_STRING(encoded)
    with nogil:
        file = open_file(AT_FDCWD, name, 0, &status)
        if file >= 0:
            size = pread(file, page, count * UNIT_OF_FILES, position)
            close(file)
    if size != count * UNIT_OF_FILES:
        return None
    for at in range(count):
        phy = load64(page + at * UNIT_OF_FILES)
        length = load32(page + at * UNIT_OF_FILES + AT_SIZE_OF_UNIT)
        if phy < 0 or length <= 0 or length == INT32_MAX:
            return None
        outside += phy < low_phy or phy > high_phy - length
    return _packed_rows(page, count), outside
