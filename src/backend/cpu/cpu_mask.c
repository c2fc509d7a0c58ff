/*
 * Channel masks: the gate (Serra et al. 2018), its compensated gradient, and the sparsity loss
 * (Yan et al. 2021, eq. 9).
 *
 * A few thousand numbers in all: one thread, doubles, libm.
 */
#include "backend/cpu/cpu_kernels.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* m = 1 where e > 0 and at the first of the largest, else 0. */
static void hard_gate(float *m, const float *e, int64_t count)
{
    int64_t largest = 0;
    for (int64_t c = 1; c < count; c++) {
        if (e[c] > e[largest])
            largest = c;
    }
    for (int64_t c = 0; c < count; c++) {
        const float value = e[c] > 0 ? 1 : 0;
        m[c] = c == largest ? 1 : value;
    }
}

void cpu_mask_gate(const struct cpu_mask_gate *args)
{
    const double s = (double)*args->s;
    for (int i = 0; i < args->n; i++) {
        if (isinf(s)) {
            hard_gate(args->m[i], args->e[i], args->sizes[i]);
            continue;
        }
        for (int64_t c = 0; c < args->sizes[i]; c++)
            args->m[i][c] = (float)fmax(sigmoid(s * (double)args->e[i][c]), MASK_SOFT_FLOOR);
    }
}

/* exact: sigmoid(e) (1 - sigmoid(e));
 * hat:   y (1 - y) s_max (cosh(clip(s e, 50)) + 1) / (cosh(e) + 1), y = sigmoid(s e) as a float:
 *        where it rounds to 1 the published gradient vanishes, and so does this one. */
static double gate_slope(const struct mask_attr *attr, double s, double e)
{
    if (attr->gradient == MASK_GRADIENT_EXACT)
        return sigmoid(e) * (1 - sigmoid(e));
    const double y = (double)(float)sigmoid(s * e);
    const double clipped = fmax(-50, fmin(50, s * e));
    return y * (1 - y) * (double)attr->s_max * (cosh(clipped) + 1) / (cosh(e) + 1);
}

void cpu_mask_gate_grad(const struct cpu_mask_gate_grad *args)
{
    const double s = (double)*args->s;
    for (int i = 0; i < args->n; i++) {
        if (!args->d_e[i])
            continue;
        for (int64_t c = 0; c < args->sizes[i]; c++) {
            const double e = (double)args->e[i][c];
            const double slope = isinf(s) ? 0 : gate_slope(&args->attr, s, e);
            args->d_e[i][c] = (float)((double)args->d_m[i][c] * slope);
        }
    }
}

/* Whether a mask has more open channels than it must keep. */
static bool may_shrink(const struct cpu_mask_sparsity *args, int i)
{
    int n_open = 0;
    for (int64_t c = 0; args->attr.least && c < args->sizes[i]; c++)
        n_open += args->m[i][c] > 0.5f;
    return !args->attr.least || n_open > args->attr.least[i];
}

/* L_S = (1 / W) sum over l of K_l n_in n_out;  d L_S / d n_in = K_l n_out / W, and the other way
 * round; every channel of a mask has the same share in n. */
void cpu_mask_sparsity(const struct cpu_mask_sparsity *args)
{
    const struct sparsity_attr *attr = &args->attr;
    double *used = (void *)args->scratch; /* [n] sum of each mask */
    double *slope = used + args->n;       /* [n] W d L_S / d n */
    for (int i = 0; i < args->n; i++) {
        used[i] = 0;
        slope[i] = 0;
        for (int64_t c = 0; c < args->sizes[i]; c++)
            used[i] += (double)args->m[i][c];
    }

    double loss = 0;
    for (int l = 0; l < attr->n_layers; l++) {
        const struct sparsity_layer *layer = &attr->layers[l];
        const bool from_image = layer->in_mask < 0;
        const double n_in = from_image ? (double)layer->in_channels : used[layer->in_mask];
        const double n_out = used[layer->out_mask];
        loss += layer->kernel_area * n_in * n_out;
        slope[layer->out_mask] += layer->kernel_area * n_in;
        if (!from_image)
            slope[layer->in_mask] += layer->kernel_area * n_out;
    }
    *args->loss = (float)(loss / attr->total);

    const double weight = (double)*args->weight;
    for (int i = 0; args->d_m && i < args->n; i++) {
        const double pull = may_shrink(args, i) ? slope[i] : 0;
        for (int64_t c = 0; args->d_m[i] && c < args->sizes[i]; c++)
            args->d_m[i][c] = (float)(weight * pull / attr->total);
    }
}
