/*
 * Matrices: the feature matrix, linear layers, rows of unit length.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* Nothing to do: `part` has been written to its columns, and dst is the matrix. */
void ref_join(const struct ref_call *call)
{
    (void)call;
}

/* dst[n,k] = sum over d of src[n,d] weights[k,d] + bias[k] */
void ref_linear(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *weights = ref_in(call, 1);
    const float *bias = ref_in_data(call, 2);
    const struct ref_tensor *dst = ref_out(call, 0);

    for (int64_t n = 0; n < dst->shape.dim[0]; n++)
        for (int64_t k = 0; k < dst->shape.dim[1]; k++) {
            double sum = 0.0;
            for (int64_t d = 0; d < src->shape.dim[1]; d++)
                sum += (double)ref_row(src, n)[d] * (double)ref_row(weights, k)[d];
            ref_row(dst, n)[k] = (float)(sum + (bias ? (double)bias[k] : 0.0));
        }
}

/* d_src[n,d] = sum over k of d_dst[n,k] weights[k, first + d] */
void ref_linear_d_src(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *weights = ref_in(call, 1);
    const struct ref_tensor *d_src = ref_out(call, 0);
    const int64_t first = call->attr->columns.first;

    for (int64_t n = 0; n < d_src->shape.dim[0]; n++)
        for (int64_t d = 0; d < d_src->shape.dim[1]; d++) {
            double sum = 0.0;
            for (int64_t k = 0; k < d_dst->shape.dim[1]; k++)
                sum += (double)ref_row(d_dst, n)[k] * (double)ref_row(weights, k)[first + d];
            ref_row(d_src, n)[d] = (float)sum;
        }
}

/* d_weights[k,d] = sum over n of d_dst[n,k] src[n,d];  d_bias[k] = sum over n of d_dst[n,k] */
void ref_linear_d_weights(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *d_dst = ref_in(call, 1);
    const struct ref_tensor *d_weights = ref_out(call, 0);
    float *d_bias = ref_out_data(call, 1);

    for (int64_t k = 0; k < d_dst->shape.dim[1]; k++) {
        for (int64_t d = 0; d_weights && d < src->shape.dim[1]; d++) {
            double sum = 0.0;
            for (int64_t n = 0; n < src->shape.dim[0]; n++)
                sum += (double)ref_row(d_dst, n)[k] * (double)ref_row(src, n)[d];
            ref_row(d_weights, k)[d] = (float)sum;
        }
        double sum = 0.0;
        for (int64_t n = 0; n < src->shape.dim[0]; n++)
            sum += (double)ref_row(d_dst, n)[k];
        if (d_bias)
            d_bias[k] = (float)sum;
    }
}

/* inv_norm = 1 / max(|src|, eps);  dst = src inv_norm */
void ref_l2norm(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *dst = ref_out(call, 0);
    float *inv_norm = ref_out_data(call, 1);
    const double eps = (double)call->attr->eps;

    for (int64_t n = 0; n < src->shape.dim[0]; n++) {
        double sum = 0.0;
        for (int64_t d = 0; d < src->shape.dim[1]; d++)
            sum += (double)ref_row(src, n)[d] * (double)ref_row(src, n)[d];
        const double length = sqrt(sum);
        const double inverse = 1.0 / (length > eps ? length : eps);
        for (int64_t d = 0; d < src->shape.dim[1]; d++)
            ref_row(dst, n)[d] = (float)((double)ref_row(src, n)[d] * inverse);
        if (inv_norm)
            inv_norm[n] = (float)inverse;
    }
}

/* d_src = inv_norm (d_dst - dst <dst, d_dst>); where eps took the place of the length, that length
 * is a constant and the second term falls away. */
void ref_l2norm_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *dst = ref_in(call, 1);
    const float *inv_norm = ref_in_data(call, 2);
    const struct ref_tensor *d_src = ref_out(call, 0);
    const float largest = (float)(1.0 / (double)call->attr->eps);

    for (int64_t n = 0; n < dst->shape.dim[0]; n++) {
        double along = 0.0;
        for (int64_t d = 0; d < dst->shape.dim[1]; d++)
            along += (double)ref_row(dst, n)[d] * (double)ref_row(d_dst, n)[d];
        if (inv_norm[n] >= largest)
            along = 0.0;
        for (int64_t d = 0; d < dst->shape.dim[1]; d++) {
            const double across = (double)ref_row(d_dst, n)[d] - (double)ref_row(dst, n)[d] * along;
            ref_row(d_src, n)[d] = (float)((double)inv_norm[n] * across);
        }
    }
}
