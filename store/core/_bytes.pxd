# Numbers in the byte order of files, big-endian.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

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
    static inline void store32(uint8_t *to, int32_t value) {
        uint32_t word = __builtin_bswap32((uint32_t)value);
        memcpy(to, &word, sizeof word);
    }
    static inline void store64(uint8_t *to, int64_t value) {
        uint64_t word = __builtin_bswap64((uint64_t)value);
        memcpy(to, &word, sizeof word);
    }
    static inline void fetch_ahead(const uint8_t *from) { /* never faults, for any address */
        __builtin_prefetch(from);
    }
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "numbers are swapped unasked: this machine has the other order of bytes"
    #endif
    """
    int16_t load16(const uint8_t *) noexcept nogil
    int32_t load32(const uint8_t *) noexcept nogil
    int64_t load64(const uint8_t *) noexcept nogil
    void store32(uint8_t *, int32_t) noexcept nogil
    void store64(uint8_t *, int64_t) noexcept nogil
    void fetch_ahead(const uint8_t *) noexcept nogil
