/*
 * Pooling: the maximum over windows, the mean over whole planes.
 */
#include "backend/ref/ref.h"

/* Position in its plane of the first maximum of the window whose corner is (top, left). What lies
 * outside the plane does not take part. */
static int64_t first_maximum(const float *plane, const int64_t size[2], int kernel, int64_t top,
                             int64_t left)
{
    int64_t best = -1;
    for (int64_t h = top < 0 ? 0 : top; h < top + kernel && h < size[0]; h++)
        for (int64_t w = left < 0 ? 0 : left; w < left + kernel && w < size[1]; w++)
            if (best < 0 || plane[h * size[1] + w] > plane[best])
                best = h * size[1] + w;
    return best;
}

void ref_maxpool(const struct ref_call *call)
{
    const struct pool_attr *attr = &call->attr->pool;
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *dst = ref_out(call, 0);
    const struct ref_tensor *index = ref_out(call, 1);
    const int64_t *in = src->shape.dim;
    const int64_t *out = dst->shape.dim;

    int64_t at = 0; /* running position in dst */
    for (int64_t plane = 0; plane < in[0] * in[1]; plane++) {
        const float *x = src->data + plane * in[2] * in[3];
        for (int64_t h = 0; h < out[2]; h++)
            for (int64_t w = 0; w < out[3]; w++, at++) {
                const int64_t best =
                    first_maximum(x, in + 2, attr->kernel, h * attr->stride - attr->pad,
                                  w * attr->stride - attr->pad);
                dst->data[at] = x[best];
                if (index)
                    index->ints[at] = (int32_t)best;
            }
    }
}

/* d_src[index] += d_dst. A plane's sums stay in float: windows that share a maximum are few. */
void ref_maxpool_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *index = ref_in(call, 1);
    const struct ref_tensor *d_src = ref_out(call, 0);
    const int64_t planes = d_src->shape.dim[0] * d_src->shape.dim[1];
    const int64_t in = shape_spatial(d_src->shape);
    const int64_t out = shape_spatial(d_dst->shape);

    for (int64_t i = 0; i < planes * in; i++)
        d_src->data[i] = 0.0F;
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t i = plane * out; i < (plane + 1) * out; i++)
            d_src->data[plane * in + index->ints[i]] += d_dst->data[i];
}

/* dst[n,c] = mean over h, w of src[n,c,h,w] */
void ref_avgpool(const struct ref_call *call)
{
    const struct ref_tensor *src = ref_in(call, 0);
    const struct ref_tensor *dst = ref_out(call, 0);
    const int64_t spatial = shape_spatial(src->shape);

    for (int64_t n = 0; n < src->shape.dim[0]; n++)
        for (int64_t c = 0; c < src->shape.dim[1]; c++) {
            double sum = 0.0;
            for (int64_t i = 0; i < spatial; i++)
                sum += (double)ref_plane(src, n, c)[i];
            ref_row(dst, n)[c] = (float)(sum / (double)spatial);
        }
}

/* d_src[n,c,h,w] = d_dst[n,c] / (h w) */
void ref_avgpool_grad(const struct ref_call *call)
{
    const struct ref_tensor *d_dst = ref_in(call, 0);
    const struct ref_tensor *d_src = ref_out(call, 0);
    const int64_t spatial = shape_spatial(d_src->shape);

    for (int64_t n = 0; n < d_src->shape.dim[0]; n++)
        for (int64_t c = 0; c < d_src->shape.dim[1]; c++)
            for (int64_t i = 0; i < spatial; i++)
                ref_plane(d_src, n, c)[i] = (float)((double)ref_row(d_dst, n)[c] / (double)spatial);
}
