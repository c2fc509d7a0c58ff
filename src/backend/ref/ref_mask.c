/*
 * Channel masks: the gate (Serra et al. 2018), its compensated gradient, and the sparsity loss
 * (Yan et al. 2021, eq. 9).
 */
#include "backend/ref/ref.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* m = 1 where e > 0 and at the first of the largest, else 0 */
static void hard_gate(float *m, const float *e, int64_t n)
{
    int64_t largest = 0;
    for (int64_t c = 1; c < n; c++)
        if (e[c] > e[largest])
            largest = c;
    for (int64_t c = 0; c < n; c++)
        m[c] = e[c] > 0.0F || c == largest ? 1.0F : 0.0F;
}

/* m = sigmoid(s e) */
void ref_mask_gate(const struct ref_call *call)
{
    const double s = (double)ref_in_data(call, 0)[0];

    for (int i = 0; i < call->n_out; i++) {
        const float *e = call->in[1 + i].data;
        float *m = call->out[i].data;
        const int64_t n = shape_count(call->out[i].shape);
        if (isinf(s)) {
            hard_gate(m, e, n);
            continue;
        }
        for (int64_t c = 0; c < n; c++)
            m[c] = (float)fmax(sigmoid(s * (double)e[c]), MASK_SOFT_FLOOR);
    }
}

/* exact: sigmoid(e) (1 - sigmoid(e))
 * hat:   y (1 - y) s_max (cosh(clip(s e, 50)) + 1) / (cosh(e) + 1), y = sigmoid(s e) as a float */
static double gate_slope(const struct mask_attr *attr, double s, double e)
{
    if (attr->gradient == MASK_GRADIENT_EXACT)
        return sigmoid(e) * (1.0 - sigmoid(e));
    const double y = (double)(float)sigmoid(s * e);
    const double clipped = fmax(-50.0, fmin(50.0, s * e));
    return y * (1.0 - y) * (double)attr->s_max * (cosh(clipped) + 1.0) / (cosh(e) + 1.0);
}

void ref_mask_gate_grad(const struct ref_call *call)
{
    const double s = (double)ref_in_data(call, 0)[0];
    const int masks = call->n_out;

    for (int i = 0; i < masks; i++) {
        float *d_e = call->out[i].data;
        if (!d_e)
            continue;
        for (int64_t c = 0; c < shape_count(call->out[i].shape); c++) {
            const double e = (double)call->in[1 + i].data[c];
            const double d_m = (double)call->in[1 + masks + i].data[c];
            const double slope = isinf(s) ? 0.0 : gate_slope(&call->attr->mask, s, e);
            d_e[c] = (float)(d_m * slope);
        }
    }
}

/* Channels in use, as a real number. */
static double mask_sum(const struct ref_tensor *mask)
{
    double sum = 0.0;
    for (int64_t c = 0; c < shape_count(mask->shape); c++)
        sum += (double)mask->data[c];
    return sum;
}

static bool may_shrink(const struct ref_tensor *mask, int least)
{
    int n_open = 0;
    for (int64_t c = 0; c < shape_count(mask->shape); c++)
        n_open += mask->data[c] > 0.5f;
    return n_open > least;
}

/* L_S = (1 / W) sum over l of K n_in n_out;  d L_S / d n_in = K n_out / W and the other way round */
void ref_mask_sparsity(const struct ref_call *call)
{
    const struct sparsity_attr *attr = &call->attr->sparsity;
    const double weight = (double)ref_in_data(call, 0)[0];
    const struct ref_tensor *masks = call->in + 1;

    double used = 0.0;
    for (int l = 0; l < attr->n_layers; l++) {
        const struct sparsity_layer *layer = &attr->layers[l];
        const double n_in =
            layer->in_mask < 0 ? layer->in_channels : mask_sum(&masks[layer->in_mask]);
        used += layer->kernel_area * n_in * mask_sum(&masks[layer->out_mask]);
    }
    if (ref_out(call, 0))
        ref_out(call, 0)->data[0] = (float)(used / attr->total);

    for (int i = 0; i + 1 < call->n_out; i++) {
        float *d_m = call->out[1 + i].data;
        if (!d_m)
            continue;
        const bool shrinks = !attr->least || may_shrink(&masks[i], attr->least[i]);
        double slope = 0.0;
        for (int l = 0; shrinks && l < attr->n_layers; l++) {
            const struct sparsity_layer *layer = &attr->layers[l];
            const double n_in =
                layer->in_mask < 0 ? layer->in_channels : mask_sum(&masks[layer->in_mask]);
            if (layer->out_mask == i)
                slope += layer->kernel_area * n_in;
            if (layer->in_mask == i)
                slope += layer->kernel_area * mask_sum(&masks[layer->out_mask]);
        }
        for (int64_t c = 0; c < shape_count(masks[i].shape); c++)
            d_m[c] = (float)(weight * slope / attr->total);
    }
}
