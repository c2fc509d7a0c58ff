/*
 * Convolution, its two gradients, and the folded form for inference.
 *
 *   dst[n,k,y,x] = sum over c, r, s of weights[k,c,r,s] src[n,c, y stride + r - pad, x stride + s - pad]
 *
 * Sums are kept for a stretch of one row at a time, so that the innermost loop runs along memory
 * while each single sum still adds its terms in the order c, r, s.
 */
#include "backend/ref/ref.h"

#include <math.h>

enum { STRETCH = 64 }; /* elements of a row that are summed side by side */

/* Sizes of one convolution: src [n,c,h,w], weights [k,c,r,s], dst [n,k,y,x]. */
struct conv {
    int64_t n, c, h, w;
    int64_t k, r, s;
    int64_t y, x;
    int64_t stride, pad;
};

static struct conv conv_sizes(const struct conv_attr *attr, struct shape src, struct shape weights,
                              struct shape dst)
{
    return (struct conv){
        .n = src.dim[0],
        .c = src.dim[1],
        .h = src.dim[2],
        .w = src.dim[3],
        .k = weights.dim[0],
        .r = weights.dim[2],
        .s = weights.dim[3],
        .y = dst.dim[2],
        .x = dst.dim[3],
        .stride = attr->stride,
        .pad = attr->pad,
    };
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rounds up; a may be negative, b is positive. */
static int64_t div_up(int64_t a, int64_t b)
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* The x in [*first, *last) for which x * stride + s - pad lies in [low, high). */
static void valid_range(const struct conv *v, int64_t s, int64_t low, int64_t high, int64_t *first,
                        int64_t *last)
{
    *first = max64(*first, div_up(low + v->pad - s, v->stride));
    *last = min64(*last, div_up(high + v->pad - s, v->stride));
}

/* sum[0 .. STRETCH) = dst[n, k, y, first ..] */
static void sum_dst(double *sum, const struct conv *v, const float *src, const float *weights,
                    const int64_t at[3], int64_t first)
{
    const int64_t n = at[0];
    const int64_t k = at[1];
    const int64_t y = at[2];

    for (int i = 0; i < STRETCH; i++)
        sum[i] = 0.0;
    for (int64_t c = 0; c < v->c; c++)
        for (int64_t r = 0; r < v->r; r++) {
            const int64_t row = y * v->stride + r - v->pad;
            if (row < 0 || row >= v->h)
                continue;
            const float *line = src + ((n * v->c + c) * v->h + row) * v->w;
            for (int64_t s = 0; s < v->s; s++) {
                const double weight = weights[((k * v->c + c) * v->r + r) * v->s + s];
                int64_t x0 = first;
                int64_t x1 = min64(first + STRETCH, v->x);
                valid_range(v, s, 0, v->w, &x0, &x1);
                for (int64_t x = x0; x < x1; x++)
                    sum[x - first] += weight * (double)line[x * v->stride + s - v->pad];
            }
        }
}

void ref_conv2d(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, CONV_SRC);
    const struct ref_tensor *weights = ref_in(call, CONV_WEIGHTS);
    const struct ref_tensor *dst = ref_out(call, 0);
    const struct conv v = conv_sizes(&call->attr->conv, src->shape, weights->shape, dst->shape);
    double sum[STRETCH];

    for (int64_t n = 0; n < v.n; n++)
        for (int64_t k = 0; k < v.k; k++)
            for (int64_t y = 0; y < v.y; y++)
                for (int64_t first = 0; first < v.x; first += STRETCH) {
                    sum_dst(sum, &v, src->data, weights->data, (int64_t[3]){n, k, y}, first);
                    float *line = dst->data + ((n * v.k + k) * v.y + y) * v.x;
                    for (int64_t x = first; x < min64(first + STRETCH, v.x); x++)
                        line[x] = (float)sum[x - first];
                }
}

/* dst = relu?(conv(src, weights) a + b + residual), a = gamma / sqrt(var + eps), b = beta - mean a */
void ref_conv2d_affine(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, AFFINE_SRC);
    const struct ref_tensor *weights = ref_in(call, AFFINE_WEIGHTS);
    const float *gamma = ref_in_data(call, AFFINE_GAMMA);
    const float *beta = ref_in_data(call, AFFINE_BETA);
    const float *mean = ref_in_data(call, AFFINE_MEAN);
    const float *var = ref_in_data(call, AFFINE_VAR);
    const float *residual = ref_in_data(call, AFFINE_RESIDUAL);
    const struct ref_tensor *dst = ref_out(call, 0);
    const struct conv_attr *attr = &call->attr->conv;
    const struct conv v = conv_sizes(attr, src->shape, weights->shape, dst->shape);
    double sum[STRETCH];

    for (int64_t n = 0; n < v.n; n++)
        for (int64_t k = 0; k < v.k; k++) {
            const double a = (double)gamma[k] / sqrt((double)var[k] + (double)attr->eps);
            const double b = (double)beta[k] - (double)mean[k] * a;
            for (int64_t y = 0; y < v.y; y++)
                for (int64_t first = 0; first < v.x; first += STRETCH) {
                    sum_dst(sum, &v, src->data, weights->data, (int64_t[3]){n, k, y}, first);
                    const int64_t line = ((n * v.k + k) * v.y + y) * v.x;
                    for (int64_t x = first; x < min64(first + STRETCH, v.x); x++) {
                        double z = sum[x - first] * a + b;
                        z += residual ? (double)residual[line + x] : 0.0;
                        dst->data[line + x] = (float)(attr->relu && z < 0.0 ? 0.0 : z);
                    }
                }
        }
}

/* sum[0 .. STRETCH) = d_src[n, c, h, first ..], terms in the order k, r, s:
 *   d_src[n,c,h,w] = sum of weights[k,c,r,s] d_dst[n,k,y,x] where h = y stride + r - pad,
 *                    w = x stride + s - pad */
static void sum_d_src(double *sum, const struct conv *v, const float *d_dst, const float *weights,
                      const int64_t at[3], int64_t first)
{
    const int64_t n = at[0];
    const int64_t c = at[1];
    const int64_t h = at[2];

    for (int i = 0; i < STRETCH; i++)
        sum[i] = 0.0;
    for (int64_t k = 0; k < v->k; k++)
        for (int64_t r = 0; r < v->r; r++) {
            const int64_t scaled = h + v->pad - r;
            if (scaled < 0 || scaled % v->stride != 0 || scaled / v->stride >= v->y)
                continue;
            const float *line = d_dst + ((n * v->k + k) * v->y + scaled / v->stride) * v->x;
            for (int64_t s = 0; s < v->s; s++) {
                const double weight = weights[((k * v->c + c) * v->r + r) * v->s + s];
                int64_t x0 = 0;
                int64_t x1 = v->x;
                valid_range(v, s, first, min64(first + STRETCH, v->w), &x0, &x1);
                for (int64_t x = x0; x < x1; x++)
                    sum[x * v->stride + s - v->pad - first] += weight * (double)line[x];
            }
        }
}

void ref_conv2d_d_src(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, CONV_D_SRC_D_DST);
    const struct ref_tensor *weights = ref_in(call, CONV_D_SRC_WEIGHTS);
    const struct ref_tensor *d_src = ref_out(call, 0);
    const struct conv v = conv_sizes(&call->attr->conv, d_src->shape, weights->shape, d_dst->shape);
    double sum[STRETCH];

    for (int64_t n = 0; n < v.n; n++)
        for (int64_t c = 0; c < v.c; c++)
            for (int64_t h = 0; h < v.h; h++)
                for (int64_t first = 0; first < v.w; first += STRETCH) {
                    sum_d_src(sum, &v, d_dst->data, weights->data, (int64_t[3]){n, c, h}, first);
                    float *line = d_src->data + ((n * v.c + c) * v.h + h) * v.w;
                    for (int64_t w = first; w < min64(first + STRETCH, v.w); w++)
                        line[w] = (float)sum[w - first];
                }
}

/* sum over x of src[n,c,row,x stride + s - pad] d_dst[n,k,y,x], added to `sum` */
static double add_row_product(double sum, const struct conv *v, const float *src,
                              const float *d_dst, int64_t s)
{
    int64_t x0 = 0;
    int64_t x1 = v->x;
    valid_range(v, s, 0, v->w, &x0, &x1);
    for (int64_t x = x0; x < x1; x++)
        sum += (double)src[x * v->stride + s - v->pad] * (double)d_dst[x];
    return sum;
}

/* d_weights[k,c,r,s] = sum over n, y, x of src[n,c, y stride + r - pad, x stride + s - pad]
 *                      d_dst[n,k,y,x] */
void ref_conv2d_d_weights(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, CONV_D_WEIGHTS_SRC);
    const struct ref_tensor *d_dst = ref_in(call, CONV_D_WEIGHTS_D_DST);
    const struct ref_tensor *d_weights = ref_out(call, 0);
    const struct conv v = conv_sizes(&call->attr->conv, src->shape, d_weights->shape, d_dst->shape);
    float *out = d_weights->data;

    for (int64_t k = 0; k < v.k; k++)
        for (int64_t c = 0; c < v.c; c++)
            for (int64_t r = 0; r < v.r; r++)
                for (int64_t s = 0; s < v.s; s++) {
                    double sum = 0.0;
                    for (int64_t n = 0; n < v.n; n++)
                        for (int64_t y = 0; y < v.y; y++) {
                            const int64_t row = y * v.stride + r - v.pad;
                            if (row < 0 || row >= v.h)
                                continue;
                            sum = add_row_product(sum, &v,
                                                  src->data + ((n * v.c + c) * v.h + row) * v.w,
                                                  d_dst->data + ((n * v.k + k) * v.y + y) * v.x, s);
                        }
                    *out++ = (float)sum;
                }
}
