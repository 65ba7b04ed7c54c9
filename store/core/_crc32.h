/* CRC-32 of a body, as zlib computes it, eight bytes a step; no Python object, no lock. */

#include <stddef.h>
#include <stdint.h>

static uint32_t crc_table[8][256];

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
}

static uint32_t crc_of(const char *data, size_t size) {
    const uint8_t *at = (const uint8_t *)data;
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, at += 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^
              crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
    }
    for (; size; size--, at++) crc = crc_table[0][(crc ^ *at) & 0xFF] ^ (crc >> 8);
    return ~crc;
}
