/*
 * What reaches batch norm from the gradient of a convolution's data: the second gradient is added, if there is one, and
 * there are zeros where the ReLU was closed. Numbers are rounded after each step.
 */
#ifndef CUDA_SLOPE_CUH
#define CUDA_SLOPE_CUH

#include "backend/cuda/kernels/norm_line.cuh"
#include "backend/cuda/kernels/pairs.cuh"

/* What the gradient of batch norm behind a gradient of data reads; images as that writes them. */
struct norm_slope {
    const bf16 *src;
    const bf16 *other; /* a second gradient, or NULL */
    const bf16 *dst;   /* behind the ReLU; NULL: there is none, or it is computed anew */
    bool relu;
    const float *gamma, *beta, *mean, *inv_std; /* [channels] */
    const float *mask;                          /* or NULL */
    int channels;                               /* that count */
};

/* ---- words ------------------------------------------------------------------------------------------ */

__device__ inline unsigned added(unsigned a, unsigned b)
{
    return packed(low_of(a) + low_of(b), high_of(a) + high_of(b));
}

/* A word, zeros where the ReLU was closed: what it gave was not above `least`. */
__device__ inline unsigned opened(unsigned word, float low, float high, float least)
{
    return (low <= least ? 0 : word & 0xffffu) | (high <= least ? 0 : word & 0xffff0000u);
}

/* By what lies behind the ReLU. */
__device__ inline unsigned opened_by(unsigned word, unsigned dst)
{
    return opened(word, low_of(dst), high_of(dst), 0.0f);
}

/* ---- batch norm as norm.cu computes it ---------------------------------------------------------------- */

/* x a + b of a channel; zeros where nobody asks. */
__device__ inline void slope_line(const struct norm_slope &s, int channel, float &a, float &b)
{
    a = b = 0.0f;
    if (s.relu && !s.dst && channel < s.channels)
        norm_line(s.gamma[channel], s.beta[channel], s.mask ? s.mask[channel] : 1.0f,
                  s.mean[channel], s.inv_std[channel], a, b);
}

/* Of N neighbouring channels. */
template <int N> struct slope_lines {
    float a[N], b[N];

    __device__ unsigned open(int at, unsigned word, unsigned src) const
    {
        return opened(word, fmaf(low_of(src), a[at], b[at]),
                      fmaf(high_of(src), a[at + 1], b[at + 1]), NORM_ZERO);
    }
};

/* ---- the host --------------------------------------------------------------------------------------- */

/* Whether an array of batch norm lies as the gradient of the data does. */
static inline bool lies_as(const struct cuda_rows &rows, const struct cuda_conv_shape *s)
{
    return rows.type == CUDA_BF16 && rows.rows == s->n * s->h * s->w && rows.stored == s->c &&
           rows.pitch == s->c && (uintptr_t)rows.data % 16 == 0;
}

/* False: something is missing, or lies otherwise. */
static inline bool slope_of(const struct cuda_conv_shape *shape, const struct cuda_bn_grad *bn,
                            struct norm_slope *out)
{
    *out = {(const bf16 *)bn->src.data,
            (const bf16 *)bn->d_dst2.data,
            bn->relu ? (const bf16 *)bn->dst.data : NULL,
            bn->relu,
            bn->gamma,
            bn->beta,
            bn->mean,
            bn->inv_std,
            bn->mask,
            (int)bn->src.cols};
    return bn->scratch && bn->src.data && lies_as(bn->d_dst, shape) && lies_as(bn->src, shape) &&
           (!bn->d_dst2.data || lies_as(bn->d_dst2, shape)) &&
           (!bn->dst.data || lies_as(bn->dst, shape));
}

#endif
