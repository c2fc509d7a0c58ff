#include "core/fnv.h"

uint64_t fnv_bytes(uint64_t hash, const void *data, size_t size)
{
    static const uint64_t prime = UINT64_C(0x100000001b3);
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * prime;
    return hash;
}
