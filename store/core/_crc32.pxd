# Checksums. A module that computes one calls `crc_prepare` when it is imported.

from libc.stdint cimport uint32_t

cdef extern from "_crc32.h":
    void crc_prepare()
    uint32_t crc_of(const char *data, size_t size) noexcept nogil
    uint32_t crc_on(uint32_t crc, const char *data, size_t size) noexcept nogil
    uint32_t crc_of_by_table(const char *data, size_t size) noexcept nogil
