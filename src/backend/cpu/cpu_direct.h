/*
 * Convolution written out for AVX-512 and for few pixels: any square kernel, stride 1 or 2.
 */
#ifndef CPU_DIRECT_H
#define CPU_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_DIRECT_BLOCK = 16 };

/* dst is nChw16c; src is too, or plain with at most 16 channels. Images and weights are aligned to
 * MEM_ALIGNMENT. */
struct cpu_direct {
    int64_t n;
    int64_t c, h, w; /* of src; c are those that count, the rest of the last block is not read */
    int64_t k, out_h, out_w; /* of dst; k a multiple of 16 */
    int64_t kernel, stride, pad;
    int64_t src_block; /* 16, or 1 */
    const float *src;
    const float *weights; /* as cpu_direct_weights makes them */
    const float *bias;    /* [k] */
    float *dst;
    bool sum; /* dst is added to */
    bool relu;
    float *scratch;
};

/* True on machines with AVX-512, for strides it knows. */
bool cpu_direct_available(int64_t stride);

size_t cpu_direct_weights_bytes(int64_t k, int64_t c, int64_t kernel);
/* Of args whose sizes are set. */
size_t cpu_direct_scratch_bytes(const struct cpu_direct *args);

/* dst = weights [k, c, kernel, kernel] in the order in which they are used; k a multiple of 16. */
void cpu_direct_weights(float *dst, const float *weights, int64_t k, int64_t c, int64_t kernel,
                        int threads);
void cpu_direct(const struct cpu_direct *args, int threads);

#endif
