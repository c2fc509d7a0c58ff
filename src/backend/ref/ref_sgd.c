/*
 * Stochastic gradient descent with momentum and decay, over any number of parameters.
 *
 *   v = momentum v + (g + decay p);  p = clamp(p - lr gain v, low, high)
 */
#include "backend/ref/ref.h"

static float clamp(double x, float low, float high)
{
    if (x < (double)low)
        return low;
    if (x > (double)high)
        return high;
    return (float)x;
}

void ref_sgd(const struct ref_call *call)
{
    const struct sgd_attr *attr = &call->attr->sgd;
    const double step = (double)ref_in_data(call, 0)[0] * (double)attr->gain;

    for (int i = 1; i + 2 < call->n_in; i += 3) {
        const struct ref_tensor *p = &call->in[i];
        const struct ref_tensor *g = &call->in[i + 1];
        const struct ref_tensor *v = &call->in[i + 2];
        for (int64_t n = 0; n < ref_n_rows(p); n++)
            for (int64_t j = 0; j < ref_row_length(p); j++) {
                float *weight = ref_row(p, n) + j;
                float *velocity = ref_row(v, n) + j;
                const double slope =
                    (double)ref_row(g, n)[j] + (double)attr->decay * (double)*weight;
                *velocity = (float)((double)attr->momentum * (double)*velocity + slope);
                *weight = clamp((double)*weight - step * (double)*velocity, attr->low, attr->high);
            }
    }
}
