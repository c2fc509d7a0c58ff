/*
 * Which convolutions the kernels of strip.cu serve.
 *
 * All that there are kernels for, by what was measured on an H200 (docs/BENCHMARKS.md), but not few images: a block
 * computes one of them, so that a small batch leaves most of the GPU idle, which cuDNN does not.
 */
#include "backend/cuda/cuda.h"

enum { FEW_IMAGES = 64 };

bool cuda_strip_serves(const struct cuda_conv_shape *shape, enum dnn_pass pass)
{
    return pass != DNN_D_WEIGHTS && shape->n >= FEW_IMAGES &&
           cuda_strip_exists(shape, pass == DNN_D_SRC);
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
