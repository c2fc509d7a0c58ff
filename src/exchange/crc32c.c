#include "exchange/crc32c.h"

/* Half a byte at a time: a table of 16 numbers, and speed enough for a few kilobytes an epoch. Entry n is what
 * four steps of the bit-reversed polynomial 0x82f63b78 make of n. */
static const uint32_t TABLE[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t crc32c(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint32_t crc = ~(uint32_t)0;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ TABLE[crc & 15];
        crc = crc >> 4 ^ TABLE[crc & 15];
    }
    return ~crc;
}

uint32_t crc32c_masked(const void *data, size_t size)
{
    uint32_t crc = crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}
