# Numbers in the byte order of files, big-endian, anywhere in memory.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint16_t load_u16(const void *from) {
        uint16_t word;
        memcpy(&word, from, sizeof word);
        return __builtin_bswap16(word);
    }
    static inline int16_t load16(const void *from) { return (int16_t)load_u16(from); }
    static inline int32_t load32(const void *from) {
        uint32_t word;
        memcpy(&word, from, sizeof word);
        return (int32_t)__builtin_bswap32(word);
    }
    static inline int64_t load64(const void *from) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        return (int64_t)__builtin_bswap64(word);
    }
    static inline void store32(void *to, int32_t value) {
        uint32_t word = __builtin_bswap32((uint32_t)value);
        memcpy(to, &word, sizeof word);
    }
    static inline void store64(void *to, int64_t value) {
        uint64_t word = __builtin_bswap64((uint64_t)value);
        memcpy(to, &word, sizeof word);
    }

    /* Store a number; return the address after it. */
    static inline char *put16(char *at, uint16_t value) {
        value = __builtin_bswap16(value);
        memcpy(at, &value, sizeof value);
        return at + sizeof value;
    }
    static inline char *put32(char *at, uint32_t value) {
        store32(at, (int32_t)value);
        return at + sizeof value;
    }
    static inline char *put64(char *at, uint64_t value) {
        store64(at, (int64_t)value);
        return at + sizeof value;
    }
    static inline void fetch_ahead(const uint8_t *from) { /* never faults, for any address */
        __builtin_prefetch(from);
    }
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "numbers are swapped unasked: this machine has the other order of bytes"
    #endif
    """
    uint16_t load_u16(const void *) noexcept nogil
    int16_t load16(const void *) noexcept nogil
    int32_t load32(const void *) noexcept nogil
    int64_t load64(const void *) noexcept nogil
    void store32(void *, int32_t) noexcept nogil
    void store64(void *, int64_t) noexcept nogil
    char *put16(char *at, uint16_t value) noexcept nogil
    char *put32(char *at, uint32_t value) noexcept nogil
    char *put64(char *at, uint64_t value) noexcept nogil
    void fetch_ahead(const uint8_t *) noexcept nogil
