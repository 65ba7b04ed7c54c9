# The first page of a queue file, and the units in it, for compiled modules.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    PAGE = 4096

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

    /* Open a regular file, which `folder` has unless `path` is absolute; never waits. -1: another
       kind of file, or an error. */
    static inline int open_file(int folder, const char *path, int flags, struct stat *found) {
        int file = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
        if (file < 0)
            return -1;
        if (fstat(file, found) == 0 && S_ISREG(found->st_mode))
            return file;
        close(file);
        return -1;
    }

    /* Fill `to` with the first bytes of a file of `size` bytes, at most a page; return how many.
       -1: an error, or data after this page. */
    static inline ssize_t read_only_page(int file, void *to, size_t page, int64_t size) {
        size_t wanted = size < (int64_t)page ? (size_t)size : page;
        if (pread(file, to, wanted, 0) != (ssize_t)wanted)
            return -1;
        if ((int64_t)wanted == size)
            return (ssize_t)wanted;
    #ifdef SEEK_DATA
        if (lseek(file, (off_t)wanted, SEEK_DATA) == -1 && errno == ENXIO)
            return (ssize_t)wanted;
    #endif
        return -1;
    }
    """
    cdef struct stat:
        int64_t st_size
    int AT_FDCWD, O_NOFOLLOW
    int open_file(int folder, const char *path, int flags, stat *found) noexcept nogil
    Py_ssize_t read_only_page(int file, void *to, size_t page, int64_t size) noexcept nogil


cdef struct ShortUnits:
    Py_ssize_t count
    int64_t last_phy
    int64_t end_phy  # end of the last record, limited to a long


cdef bint units_of_page(
    const uint8_t *page, Py_ssize_t size, int64_t file_size, int64_t max_phy_offset,
    ShortUnits *found
) noexcept nogil

cdef bytes path_bytes(str path)
