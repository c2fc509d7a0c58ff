/*
 * How channels are cut up for the sums of batch norm, and where partial ones lie: [slice][part][columns], in f32 for images
 * in bf16. Columns are the sums of a slice's channels, then those of their squares; where there are fewer channels than
 * a slice is wide, the rest of the columns means nothing.
 */
#ifndef CUDA_SLICES_CUH
#define CUDA_SLICES_CUH

#include <stdint.h>

enum {
    SLICE_MIN = 16, /* channels */
    SLICE_MAX = 64  /* 128 bytes of bf16: narrower pieces of a longer row cost as much */
};

/* As wide as rows of so many channels allow. */
__host__ __device__ constexpr int slice_width(int64_t stored)
{
    return stored > SLICE_MAX / 2 ? (int)SLICE_MAX : stored > SLICE_MIN ? SLICE_MAX / 2 : SLICE_MIN;
}

/* Where the columns of a part of a slice begin. */
__host__ __device__ inline float *slice_part(float *sums, int width, int slice, int parts, int part)
{
    return sums + ((int64_t)slice * parts + part) * 2 * width;
}

#endif
