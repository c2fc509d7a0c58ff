#include "core/rng.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };

static const uint32_t PHILOX_M0 = 0xD2511F53u;
static const uint32_t PHILOX_M1 = 0xCD9E8D57u;
static const uint32_t PHILOX_W0 = 0x9E3779B9u;
static const uint32_t PHILOX_W1 = 0xBB67AE85u;
static const double PI = 3.14159265358979323846;

/* counter: low and high half of the index, the stream, the purpose; key: the seed. */
struct rng_block rng_at(uint64_t seed, enum rng_purpose purpose, uint32_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index;
    uint32_t c1 = (uint32_t)(index >> 32);
    uint32_t c2 = stream;
    uint32_t c3 = (uint32_t)purpose;
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    return (struct rng_block){{c0, c1, c2, c3}};
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
