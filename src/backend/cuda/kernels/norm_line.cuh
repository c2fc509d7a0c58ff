/*
 * Batch norm of a channel of images in bf16 is a line, x a + b. Whoever computes it anew gets the same bits: a and b follow
 * from mean and deviation as they are stored.
 */
#ifndef CUDA_NORM_LINE_CUH
#define CUDA_NORM_LINE_CUH

/* What is not above this is zero in bf16, whose least number is twice as large. */
#define NORM_ZERO 0x1p-134f

__device__ inline void norm_line(float gamma, float beta, float mask, float mean, float inv_std,
                                 float &a, float &b)
{
    const double slope = (double)mask * (double)gamma * (double)inv_std;
    a = (float)slope;
    b = (float)fma(-(double)mean, slope, (double)mask * (double)beta);
}

#endif
