# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads the units of a short queue with one open, one read and one search for later data.

In a store with many queues, most have one file whose units fit into its first page. All other
files, and those with irregular content, are left to the slow path in Python. No size and no value
on disk is trusted: every read is bounded by the page that it fills.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport strlen

from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, UNIT_OF_FILES

cdef enum:
    PAGE = 4096


cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object)


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/stat.h>
    #include <sys/types.h>
    #include <unistd.h>

    /* Fill `to` with the first bytes of a regular file of `size` bytes, at most a page; return how
       many. -1: another kind of file, another size, an error, or data after this page. */
    static ssize_t read_only_page(const char *path, void *to, size_t page, int64_t size) {
        struct stat found;
        size_t wanted = size < (int64_t)page ? (size_t)size : page;
        ssize_t count = -1;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return -1;
        if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == size) {
            count = pread(fd, to, wanted, 0);
            if (count != (ssize_t)wanted)
                count = -1;
    #ifdef SEEK_DATA
            else if ((int64_t)wanted < size
                     && !(lseek(fd, (off_t)wanted, SEEK_DATA) == -1 && errno == ENXIO))
                count = -1;
    #else
            else if ((int64_t)wanted < size)
                count = -1;
    #endif
        }
        close(fd);
        return count;
    }
    """
    Py_ssize_t read_only_page(
        const char *path, void *to, size_t page, int64_t size
    ) noexcept nogil


def short_queue(str path not None, int64_t file_size, int64_t max_phy_offset):
    """Return the units, the last phy offset and the end of its record; ``None``: not a short queue.

    A short queue has units from the start of its only file on, in order, below ``max_phy_offset``,
    no pre-blanks, and nothing but zeros after them; its last unit is before the end of the page,
    or the file ends there.
    """
    cdef uint8_t page[PAGE]
    cdef Py_ssize_t size, at = 0, row
    cdef int64_t phy, last = -1, end
    cdef int32_t length = 0
    cdef const char *name
    cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
    name = PyBytes_AS_STRING(encoded)
    if <Py_ssize_t> strlen(name) != len(encoded) or file_size < UNIT_OF_FILES:
        return None
    with nogil:
        size = read_only_page(name, page, PAGE, file_size)
        while at + UNIT_OF_FILES <= size:
            phy = load64(page + at)
            if not last < phy < max_phy_offset or load32(page + at + AT_SIZE_OF_UNIT) <= 0:
                break
            if phy == 0 and load32(page + at + AT_SIZE_OF_UNIT) == INT32_MAX:
                size = -1  # maybe a pre-blank
                break
            last, length = phy, load32(page + at + AT_SIZE_OF_UNIT)
            at += UNIT_OF_FILES
        for row in range(at, size):
            if page[row] != 0:
                size = -1
                break
    if size < 0 or at == 0 or (at + UNIT_OF_FILES > size and size < file_size):
        return None
    end = last + length if last <= INT64_MAX - length else INT64_MAX
    return PyBytes_FromStringAndSize(<char *> page, at), last, end
