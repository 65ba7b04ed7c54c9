# cython: language_level=3
"""``bring_in``: load pages of a map into memory before they are written to."""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>

    enum { PAGES_AT_ONCE = 512 << 10 }; /* limits the wait of a change of a map */

    /* Whether the kernel supports it; a signal or lack of memory does not mean that it does not. */
    static int pages_bring_in(char *start, char *end) {
    #if defined(__linux__)
        const int populate_write = 23; /* MADV_POPULATE_WRITE, since Linux 5.14 */
        start -= (uintptr_t)start % (uintptr_t)sysconf(_SC_PAGESIZE); /* maps are page-aligned */
        while (start < end) {
            size_t left = (size_t)(end - start), size = left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE;
            if (madvise(start, size, populate_write)) return errno != EINVAL && errno != ENOSYS;
            start += size;
        }
        return 1;
    #else
        return 0;
    #endif
    }
    """
    bint pages_bring_in(char *start, char *end) nogil


def bring_in(target, Py_ssize_t start, Py_ssize_t end):
    """Load the bytes from ``start`` to ``end`` of a writable map into memory, without the GIL.

    Returns whether the kernel supports it. No byte changes; a page is then as if it had been
    written to.
    """
    cdef Py_buffer buffer
    cdef bint done
    PyObject_GetBuffer(target, &buffer, PyBUF_WRITABLE)
    try:
        if not 0 <= start <= end <= buffer.len:
            raise ValueError(f"invalid range {start} to {end}: the buffer has {buffer.len} bytes")
        with nogil:
            done = pages_bring_in(<char *> buffer.buf + start, <char *> buffer.buf + end)
    finally:
        PyBuffer_Release(&buffer)
    return done
