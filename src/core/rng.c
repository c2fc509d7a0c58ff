#include "core/rng.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

struct rng_block rng_at(uint64_t seed, enum rng_purpose purpose, uint32_t stream, uint64_t index)
{
    return philox(seed, (uint32_t)purpose, stream, index);
}

float rng_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

void rng_normal(float *dst, int64_t n, double std, uint64_t seed, enum rng_purpose purpose,
                uint32_t stream)
{
    for (int64_t i = 0; i < n; i += 4) {
        struct rng_block block = rng_at(seed, purpose, stream, (uint64_t)i / 4);
        for (int pair = 0; pair < 2; pair++) {
            /* Box-Muller: u1 in (0, 1], so that the logarithm stays finite. */
            double u1 = ((double)block.word[2 * pair] + 1.0) * 0x1p-32;
            double u2 = (double)block.word[2 * pair + 1] * 0x1p-32;
            double radius = std * sqrt(-2.0 * log(u1));
            int64_t at = i + 2 * pair;
            if (at < n)
                dst[at] = (float)(radius * cos(2.0 * PI * u2));
            if (at + 1 < n)
                dst[at + 1] = (float)(radius * sin(2.0 * PI * u2));
        }
    }
}

void rng_uniform(float *dst, int64_t n, double low, double high, uint64_t seed,
                 enum rng_purpose purpose, uint32_t stream)
{
    for (int64_t i = 0; i < n; i++) {
        struct rng_block block = rng_at(seed, purpose, stream, (uint64_t)i / 4);
        dst[i] = (float)(low + (high - low) * (double)rng_unit(block.word[i % 4]));
    }
}
