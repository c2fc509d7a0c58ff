/*
 * Winograd convolution, written out for AVX-512: 3x3, stride 1, pad 1, blocks of 16 channels.
 */
#ifndef CPU_WINOGRAD_H
#define CPU_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True on machines with AVX-512, where alone it is worth having. */
bool cpu_winograd_available(void);

/* Images are nChw16c, aligned to MEM_ALIGNMENT. */
struct cpu_winograd {
    int64_t n, h, w;
    int64_t c_in;  /* those that count; the rest of the last block has no weights */
    int64_t c_out; /* a multiple of 16 */
    const float *src;
    const float *weights; /* as cpu_winograd_weights makes them */
    const float *bias;    /* [c_out] or NULL */
    float *dst;
    bool sum; /* dst is added to */
    bool relu;
    float *scratch;
};

size_t cpu_winograd_weights_bytes(int64_t c_in, int64_t c_out);
size_t cpu_winograd_scratch_bytes(int64_t c_in, int threads);

/* dst = transformed weights [k, c, 3, 3]; backward: those of the gradient towards src, which is a
 * convolution of d_dst with the same weights turned round, from k channels to c. The channels of the
 * convolution's result, k or backward c, are a multiple of 16. */
void cpu_winograd_weights(float *dst, const float *weights, int64_t k, int64_t c, bool backward,
                          int threads);
void cpu_winograd(const struct cpu_winograd *args, int threads);

#endif
