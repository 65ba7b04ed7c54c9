/* CRC-32 as zlib computes it; no Python object, no lock.
 *
 * Where the processor multiplies without carries (PCLMULQDQ, found at run time), 64 bytes a step are
 * folded into 16 that have the same remainder; the rest goes through tables, eight bytes a step.
 * After Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction". */

#include <stddef.h>
#include <stdint.h>

static uint32_t crc_table[8][256];
static int crc_folds; /* whether the processor can */

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t size) {
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^
              crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
    }
    for (; size; size--, at++) crc = crc_table[0][(crc ^ *at) & 0xFF] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CRC_FOLDING __attribute__((target("pclmul,sse2")))
enum { CRC_BLOCK = 16, CRC_LANES = 4, CRC_STEP = CRC_BLOCK * CRC_LANES };

static void crc_find_folding(void) {
    __builtin_cpu_init();
    crc_folds = __builtin_cpu_supports("pclmul");
}

CRC_FOLDING static inline __m128i crc_load(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

/* Return a value with the remainder of `folded` shifted left as `by` encodes, xor `more`. */
CRC_FOLDING static inline __m128i crc_fold(__m128i folded, __m128i by, __m128i more) {
    __m128i low = _mm_clmulepi64_si128(folded, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(folded, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), more);
}

/* For at least 16 bytes. */
CRC_FOLDING static uint32_t crc_by_folding(uint32_t crc, const uint8_t *at, size_t size) {
    /* x^(n + 32) and x^(n - 32) modulo the polynomial, bits in reverse, one to the left. */
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i begin = _mm_cvtsi32_si128((int)crc);
    uint8_t rest[CRC_BLOCK];
    __m128i lane[CRC_LANES];
    lane[0] = _mm_xor_si128(crc_load(at), begin);
    if (size >= CRC_STEP) {
        for (int n = 1; n < CRC_LANES; n++) lane[n] = crc_load(at + n * CRC_BLOCK);
        for (at += CRC_STEP, size -= CRC_STEP; size >= CRC_STEP; at += CRC_STEP, size -= CRC_STEP)
            for (int n = 0; n < CRC_LANES; n++)
                lane[n] = crc_fold(lane[n], by_512, crc_load(at + n * CRC_BLOCK));
        for (int n = 1; n < CRC_LANES; n++) lane[0] = crc_fold(lane[0], by_128, lane[n]);
    } else {
        at += CRC_BLOCK, size -= CRC_BLOCK;
    }
    for (; size >= CRC_BLOCK; at += CRC_BLOCK, size -= CRC_BLOCK)
        lane[0] = crc_fold(lane[0], by_128, crc_load(at));
    _mm_storeu_si128((__m128i *)rest, lane[0]);
    return crc_by_table(crc_by_table(0, rest, CRC_BLOCK), at, size);
}
#else
enum { CRC_BLOCK = 16 };
static void crc_find_folding(void) { crc_folds = 0; }
static uint32_t crc_by_folding(uint32_t crc, const uint8_t *at, size_t size) {
    return crc_by_table(crc, at, size);
}
#endif

static void crc_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
        crc_table[0][byte] = value;
    }
    for (int ahead = 1; ahead < 8; ahead++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_table[ahead - 1][byte];
            crc_table[ahead][byte] = crc_table[0][before & 0xFF] ^ (before >> 8);
        }
    }
    crc_find_folding();
}

/* The checksum of the bytes of `crc` followed by `data`. */
static inline uint32_t crc_on(uint32_t crc, const char *data, size_t size) {
    const uint8_t *at = (const uint8_t *)data;
    if (crc_folds && size >= CRC_BLOCK) return ~crc_by_folding(~crc, at, size);
    return ~crc_by_table(~crc, at, size);
}

static inline uint32_t crc_of(const char *data, size_t size) { return crc_on(0, data, size); }

/* `crc_of` without folding, for a comparison of both. */
static inline uint32_t crc_of_by_table(const char *data, size_t size) {
    return ~crc_by_table(0xFFFFFFFFu, (const uint8_t *)data, size);
}
