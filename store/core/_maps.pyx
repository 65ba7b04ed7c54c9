# cython: language_level=3, boundscheck=False, wraparound=False
"""FileMap: files that are mapped to be read, and what happens where the disk has nothing to give.

They are those of queues and of the index; the log's maps are Python's (``cqstore.store.log.log_map``).
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
        madvise(data, size, MADV_RANDOM); /* one page is wanted, not what the disk reads ahead */
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
    MAX_MAPS = 8192  # of this process, to which the kernel allows 65,530 by default
cdef int64_t _maps = 0


@cython.no_gc  # an open file leads nowhere
cdef class FileMap:
    """A file that is mapped to be read at random. Any thread.

    A file that is shorter than it was, or a disk that refuses, is met where it is read, and nowhere
    else; but of the page that its end lies in the rest reads as zeros, see ``ends_before``. What others
    write to the file is seen. Without a handler of bus errors nothing is mapped: a file with an
    owner is read by system calls then, and of another one nothing.
    """

    def __init__(self, int fd, int64_t size, owner=None):
        """Map ``size`` bytes, if bus errors are handled and there are not too many maps.

        ``owner`` keeps the descriptor open; without one it may be closed behind this, and the
        size of the file cannot be asked for.
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
        """Return whether zeros that end there may be none of the file, since it was cut.

        The rest of the page shows it, as all of it is zero then; else the system is asked.
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
        """Copy bytes; False: they are not there, or cannot be read."""
        if position < 0 or size > self.size or position > self.size - size:
            return False
        if self.data == NULL:
            return self.fd >= 0 and pread(self.fd, to, size, position) == size
        return copy_mapped(to, self.data + position, size)

    cdef bint read_again(self, void *to, int64_t size, int64_t position) noexcept nogil:
        """Copy bytes of pages that were read before, so that the disk is hardly ever waited for."""
        cdef int64_t page
        if self.seen == NULL or position < 0 or position + size > self.size:
            return False
        for page in range(position // PAGE, (position + size - 1) // PAGE + 1):
            if not self.seen[page >> 3] >> (page & 7) & 1:
                return False
        return copy_mapped(to, self.data + position, size)

    cdef void saw(self, int64_t size, int64_t position) noexcept:
        """Note that bytes were read by another way."""
        cdef int64_t page
        if self.seen == NULL and self.data != NULL:
            self.seen = <uint8_t *> calloc(self.size // PAGE // 8 + 1, 1)
        if self.seen == NULL or position < 0 or position + size > self.size:
            return
        for page in range(position // PAGE, (position + size - 1) // PAGE + 1):
            self.seen[page >> 3] |= 1 << (page & 7)
