# Numbers as they lie on disk, big-endian, checksums, and buffers that are held.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline int16_t load16(const uint8_t *from) {
        uint16_t word;
        memcpy(&word, from, sizeof word);
        return (int16_t)__builtin_bswap16(word);
    }
    static inline int32_t load32(const uint8_t *from) {
        uint32_t word;
        memcpy(&word, from, sizeof word);
        return (int32_t)__builtin_bswap32(word);
    }
    static inline int64_t load64(const uint8_t *from) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        return (int64_t)__builtin_bswap64(word);
    }
    static inline void fetch_ahead(const uint8_t *from) { /* never faults, wherever it leads */
        __builtin_prefetch(from);
    }
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "numbers are swapped unasked: the twins run on this machine"
    #endif
    """
    int16_t load16(const uint8_t *) noexcept nogil
    int32_t load32(const uint8_t *) noexcept nogil
    int64_t load64(const uint8_t *) noexcept nogil
    void fetch_ahead(const uint8_t *) noexcept nogil


@cython.final
@cython.internal
@cython.no_gc
@cython.freelist(16)
cdef class Held:
    """The bytes of an object, which lives and does not move as long as this is held."""

    cdef Py_buffer buffer
    cdef object view

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)

    cdef object slice(self, Py_ssize_t start, Py_ssize_t end):
        """Return a read-only view of a part, which keeps the object alive by itself."""
        if self.view is None:
            self.view = memoryview(<object> self.buffer.obj).toreadonly()
        return self.view[start:end]

cdef extern from "_crc32.h":
    void crc_prepare()
    uint32_t crc_of(const char *data, size_t size) noexcept nogil
    uint32_t crc_of_by_table(const char *data, size_t size) noexcept nogil

crc_prepare()
