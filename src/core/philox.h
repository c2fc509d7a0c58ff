/*
 * One block of Philox4x32-10, as an inline function: kernels of a GPU draw the very words that the host
 * draws (core/rng.h). Nothing here needs more than a compiler for C11 or CUDA.
 */
#ifndef CORE_PHILOX_H
#define CORE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

struct rng_block {
    uint32_t word[4];
};

enum { PHILOX_ROUNDS = 10 };

/* counter: low and high half of the index, the stream, the purpose; key: the seed. */
HOST_DEVICE static inline struct rng_block philox(uint64_t seed, uint32_t purpose, uint32_t stream,
                                                  uint64_t index)
{
    uint32_t c0 = (uint32_t)index;
    uint32_t c1 = (uint32_t)(index >> 32);
    uint32_t c2 = stream;
    uint32_t c3 = purpose;
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct rng_block block = {{c0, c1, c2, c3}};
    return block;
}

#endif
