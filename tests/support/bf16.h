/*
 * Numbers of eight bits on the host, as the GPU has them: the upper half of a float, rounded to the nearest, ties to
 * even. For finite numbers.
 */
#ifndef SUPPORT_BF16_H
#define SUPPORT_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint16_t to_bf16(float x)
{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return (uint16_t)((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

static inline float of_bf16(uint16_t half)
{
    const uint32_t word = (uint32_t)half << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}

#endif
