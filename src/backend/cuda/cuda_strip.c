/*
 * Which convolutions the kernels of strip.cu and strip_weights.cu serve.
 *
 * All that there are kernels for, by what was measured on an H200 (docs/KERNELS.md), but not few images: a block
 * computes one of them, so that a small batch leaves most of the GPU idle, which cuDNN does not. Gradients of weights
 * have been measured of no larger images than 32x32.
 */
#include "backend/cuda/cuda.h"

enum { LARGE_IMAGE = 32 * 32 };

bool cuda_strip_serves(const struct cuda_conv_shape *shape, enum dnn_pass pass)
{
    if (shape->n < CUDA_FEW_IMAGES)
        return false;
    if (pass == DNN_D_WEIGHTS)
        return cuda_strip_grad_exists(shape) && shape->h * shape->w <= LARGE_IMAGE;
    return cuda_strip_exists(shape, pass == DNN_D_SRC);
}

/* Half of the GPU's multiprocessors have a block of the gradient of weights, which runs beside the steps that everything
 * waits for: on all of them it ends earlier by a fifth to a third, but adds up twice as many sums, and an iteration takes
 * longer. 1x1 has a quarter, for the same reason. */
int cuda_strip_splits(const struct cuda_conv_shape *s)
{
    enum { PORTION = 128 /* pixels that a block takes at once */ };
    const int64_t blocks = s->r > 1 ? 66 : 33;
    const int64_t tiles = cuda_strip_grad_tiles(s);
    const int64_t portions = s->n * s->out_h * s->out_w / PORTION;
    const int64_t splits = blocks / tiles < portions ? blocks / tiles : portions;
    return splits > 1 ? (int)splits : 1;
}

/* 9.0 and no later one: the instructions are Hopper's own. */
enum der_status cuda_strip_runs_on(struct der_ctx *ctx, int device, bool *out)
{
    static const char WHAT[] = "asking the GPU what it can do";
    int major = 0;
    int minor = 0;
    TRY(cuda_check(ctx, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                   WHAT));
    TRY(cuda_check(ctx, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                   WHAT));
    *out = major == 9 && minor == 0;
    return DER_OK;
}
