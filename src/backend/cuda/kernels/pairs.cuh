/*
 * Two numbers in bf16 that lie next to each other, as a word.
 */
#ifndef CUDA_PAIRS_CUH
#define CUDA_PAIRS_CUH

#include "backend/cuda/kernels/device.cuh"

__device__ inline unsigned packed(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&pair);
}

__device__ inline float low_of(unsigned word)
{
    return __uint_as_float(word << 16);
}

__device__ inline float high_of(unsigned word)
{
    return __uint_as_float(word & 0xffff0000u);
}

#endif
