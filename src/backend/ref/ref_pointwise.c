/*
 * Element by element: ReLU, sums, products with a channel vector or a number.
 */
#include "backend/ref/ref.h"

/* dst = max(src, 0); NaN stays NaN */
void ref_relu(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *dst = ref_out(call, 0);

    for (int64_t n = 0; n < ref_n_rows(src); n++)
        for (int64_t i = 0; i < ref_row_length(src); i++) {
            const float x = ref_row(src, n)[i];
            ref_row(dst, n)[i] = x < 0.0F ? 0.0F : x;
        }
}

/* d_src = d_dst where dst > 0, else 0 */
void ref_relu_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *dst = ref_in(call, 1);
    const struct ref_tensor *d_src = ref_out(call, 0);

    for (int64_t n = 0; n < ref_n_rows(d_dst); n++)
        for (int64_t i = 0; i < ref_row_length(d_dst); i++)
            ref_row(d_src, n)[i] = ref_row(dst, n)[i] <= 0.0F ? 0.0F : ref_row(d_dst, n)[i];
}

/* dst = a + b + ... */
void ref_add(const struct ref_call *call)
{
    const struct ref_tensor *dst = ref_out(call, 0);

    for (int64_t n = 0; n < ref_n_rows(dst); n++)
        for (int64_t i = 0; i < ref_row_length(dst); i++) {
            double sum = 0.0;
            for (int k = 0; k < call->n_in; k++)
                sum += (double)ref_row(&call->in[k], n)[i];
            ref_row(dst, n)[i] = (float)sum;
        }
}

/* dst[n,c,...] = src[n,c,...] m[c] */
void ref_scale_channel(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const float *m = ref_in_data(call, 1);
    const struct ref_tensor *dst = ref_out(call, 0);

    for (int64_t n = 0; n < src->shape.dim[0]; n++)
        for (int64_t c = 0; c < src->shape.dim[1]; c++)
            for (int64_t i = 0; i < shape_spatial(src->shape); i++)
                ref_plane(dst, n, c)[i] = ref_plane(src, n, c)[i] * m[c];
}

/* d_src = d_dst m;  d_m[c] = sum over n, h, w of d_dst src */
void ref_scale_channel_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *src = ref_in(call, 1);
    const float *m = ref_in_data(call, 2);
    const struct ref_tensor *d_src = ref_out(call, 0);
    float *d_m = ref_out_data(call, 1);

    for (int64_t c = 0; c < src->shape.dim[1]; c++) {
        double sum = 0.0;
        for (int64_t n = 0; n < src->shape.dim[0]; n++)
            for (int64_t i = 0; i < shape_spatial(src->shape); i++) {
                const float g = ref_plane(d_dst, n, c)[i];
                sum += (double)g * (double)ref_plane(src, n, c)[i];
                if (d_src)
                    ref_plane(d_src, n, c)[i] = g * m[c];
            }
        if (d_m)
            d_m[c] = (float)sum;
    }
}

/* dst = src factor */
void ref_scale(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const float factor = ref_in_data(call, 1)[0];
    const struct ref_tensor *dst = ref_out(call, 0);

    for (int64_t n = 0; n < ref_n_rows(src); n++)
        for (int64_t i = 0; i < ref_row_length(src); i++)
            ref_row(dst, n)[i] = ref_row(src, n)[i] * factor;
}

/* d_src = d_dst factor;  d_factor = sum of d_dst src */
void ref_scale_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *src = ref_in(call, 1);
    const float factor = ref_in_data(call, 2)[0];
    const struct ref_tensor *d_src = ref_out(call, 0);
    float *d_factor = ref_out_data(call, 1);

    double sum = 0.0;
    for (int64_t n = 0; n < ref_n_rows(src); n++)
        for (int64_t i = 0; i < ref_row_length(src); i++) {
            const float g = ref_row(d_dst, n)[i];
            sum += (double)g * (double)ref_row(src, n)[i];
            if (d_src)
                ref_row(d_src, n)[i] = g * factor;
        }
    if (d_factor)
        *d_factor = (float)sum;
}
