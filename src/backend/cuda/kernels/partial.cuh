/*
 * Gradients of weights that blocks have added up apart: their sum, as the caller sees it.
 */
#ifndef CUDA_PARTIAL_CUH
#define CUDA_PARTIAL_CUH

#include "backend/cuda/kernels/device.cuh"

enum { PARTIAL_SLICES = 8 };

/* dst [k, c, area] = sum over n of partial [n, k_stored, area, c_stored] */
static __global__ void add_partial_kernel(float *dst, const float *partial, int n,
                                          const struct cuda_weights w)
{
    __shared__ float sums[PARTIAL_SLICES][32];
    const int64_t row = w.area * w.c_stored;
    const int64_t i = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (i < w.k * row) {
#pragma unroll 8
        for (int b = threadIdx.y; b < n; b += PARTIAL_SLICES)
            sum += partial[(int64_t)b * w.k_stored * row + i];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    const int64_t c = i % w.c_stored;
    if (threadIdx.y != 0 || i >= w.k * row || c >= w.c)
        return;
    for (int slice = 1; slice < PARTIAL_SLICES; slice++)
        sum += sums[slice][threadIdx.x];
    dst[(i / row * w.c + c) * w.area + i % row / w.c_stored] = sum;
}

/* Only the sizes of `w` count. */
static inline cudaError_t add_partial(float *dst, const float *partial, int n,
                                      const struct cuda_weights *w, cudaStream_t stream)
{
    const unsigned blocks = (unsigned)((w->k * w->area * w->c_stored + 31) / 32);
    add_partial_kernel<<<blocks, dim3(32, PARTIAL_SLICES), 0, stream>>>(dst, partial, n, *w);
    return cudaGetLastError();
}

#endif
