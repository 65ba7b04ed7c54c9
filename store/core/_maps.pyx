# cython: language_level=3, boundscheck=False, wraparound=False
"""FileMap: files that are mapped for reading, with handling of read errors.

These are the files of queues and of the index; the log's maps are in Python
(``cqstore.store.log.log_map``).
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport pread

from cqstore.store.core._faults cimport copy_mapped, handle_bus_errors

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/mman.h>
    #include <sys/stat.h>

    static const uint8_t *map_file(int fd, size_t size) {
        void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) return NULL;
        madvise(data, size, MADV_RANDOM); /* single pages, without the disk's read-ahead */
        return data;
    }
    static int has_size(int fd, int64_t size) {
        struct stat about;
        return fstat(fd, &about) == 0 && about.st_size >= size;
    }
    static void unmap_file(const uint8_t *data, size_t size) { munmap((void *)data, size); }
    """
    const uint8_t *map_file(int fd, size_t size) nogil
    void unmap_file(const uint8_t *data, size_t size) nogil
    bint has_size(int fd, int64_t size) noexcept nogil


cdef enum:
    PAGE = 4096
    AT_ONCE = 256
    MAX_MAPS = 8192  # per process; the kernel allows 65,530 by default
cdef int64_t _maps = 0


@cython.no_gc  # an open file cannot be part of a cycle
cdef class FileMap:
    """A file that is mapped for random reads. Any thread.

    If the file was truncated, or the disk fails, only the read of that position fails; but in the
    page that contains the file's end, the rest reads as zeros, see ``ends_before``. Writes of
    others to the file are visible. Without a handler of bus errors nothing is mapped: then a file
    with an owner is read by system calls, and reads of another file fail.
    """

    def __init__(self, int fd, int64_t size, owner=None):
        """Map ``size`` bytes, if bus errors are handled and there are not too many maps.

        ``owner`` keeps the descriptor open; without it, the descriptor may be closed after this
        call, and the size of the file cannot be checked.
        """
        global _maps
        if self.data != NULL:
            raise TypeError("it is mapped already")
        self.fd, self.owner, self.size = fd if owner is not None else -1, owner, max(size, 0)
        if handle_bus_errors() and size > 0 and _maps < MAX_MAPS:
            self.data = map_file(fd, size)
            if self.data != NULL:
                _maps += 1

    def __dealloc__(self):
        global _maps
        if self.data != NULL:
            unmap_file(self.data, self.size)
            _maps -= 1
        free(self.seen)

    cdef bint ends_before(self, int64_t position) noexcept nogil:
        """Return whether zeros up to ``position`` may not be the file's, because it was truncated.

        If the rest of the page is not zero, it was not; otherwise the system is asked for the size.
        """
        cdef uint8_t block[AT_ONCE]
        cdef int64_t end = min((position // PAGE + 1) * PAGE, self.size), count, at
        while position < end:
            count = min(<int64_t> AT_ONCE, end - position)
            if not self.read(block, count, position):
                return True
            for at in range(count):
                if block[at]:
                    return False
            position += count
        return self.fd >= 0 and not has_size(self.fd, self.size)

    cdef bint read(self, void *to, int64_t size, int64_t position) noexcept nogil:
        """Copy bytes; False: they do not exist, or cannot be read."""
        if position < 0 or size > self.size or position > self.size - size:
            return False
        if self.data == NULL:
            return self.fd >= 0 and pread(self.fd, to, size, position) == size
        return copy_mapped(to, self.data + position, size)

    cdef bint read_again(self, void *to, int64_t size, int64_t position) noexcept nogil:
        """Copy bytes of pages that were read before, so that the disk is rarely waited for."""
        cdef int64_t page
        if self.seen == NULL or position < 0 or position + size > self.size:
            return False
        for page in range(position // PAGE, (position + size - 1) // PAGE + 1):
            if not self.seen[page >> 3] >> (page & 7) & 1:
                return False
        return copy_mapped(to, self.data + position, size)

    cdef void saw(self, int64_t size, int64_t position) noexcept:
        """Record that bytes were read in another way."""
        cdef int64_t page
        if self.seen == NULL and self.data != NULL:
            self.seen = <uint8_t *> calloc(self.size // PAGE // 8 + 1, 1)
        if self.seen == NULL or position < 0 or position + size > self.size:
            return
        for page in range(position // PAGE, (position + size - 1) // PAGE + 1):
            self.seen[page >> 3] |= 1 << (page & 7)
