/*
 * Fuzz target: PNG files. Checksums of chunks, which random changes never get right, are put in
 * order first.
 */
#include "fuzz/fuzz_image.h"

#include <string.h>

/* CRC-32 as PNG and gzip use it. */
static uint32_t crc(const uint8_t *data, size_t size)
{
    uint32_t value = 0xFFFFFFFFu;
    for (size_t i = 0; i < size; i++) {
        value ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
    }
    return ~value;
}

static void repair(uint8_t *file, size_t size)
{
    size_t at = 8;
    while (size >= 12 && at <= size - 12) {
        size_t length = (size_t)file[at] << 24 | (size_t)file[at + 1] << 16 |
                        (size_t)file[at + 2] << 8 | file[at + 3];
        if (length > size - 12 - at)
            return;
        uint32_t value = crc(file + at + 4, length + 4);
        for (size_t i = 0; i < 4; i++)
            file[at + 8 + length + i] = (uint8_t)(value >> (24 - 8 * i));
        at += 12 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != 0x89)
        return 0;
    fuzz_image(data, size);
    uint8_t *repaired = malloc(size);
    require(repaired != NULL);
    memcpy(repaired, data, size);
    repair(repaired, size);
    fuzz_image(repaired, size);
    free(repaired);
    return 0;
}
