/*
 * Batch normalisation with mask, residual and ReLU, and its gradient (Ioffe & Szegedy 2015).
 *
 *   x^ = (src - mean) inv_std;  z = mask (gamma x^ + beta) + residual;  dst = relu ? max(z, 0) : z
 */
#include "backend/ref/ref.h"

#include <math.h>

/* Mean and biased variance of one channel over n, h, w, in two passes. */
static void channel_moments(const struct ref_tensor *src, int64_t c, double *mean, double *var)
{
    const int64_t samples = src->shape.dim[0];
    const int64_t spatial = shape_spatial(src->shape);
    const double count = (double)(samples * spatial);

    double sum = 0.0;
    for (int64_t n = 0; n < samples; n++) {
        const float *plane = ref_plane(src, n, c);
        for (int64_t i = 0; i < spatial; i++)
            sum += (double)plane[i];
    }
    *mean = sum / count;

    sum = 0.0;
    for (int64_t n = 0; n < samples; n++) {
        const float *plane = ref_plane(src, n, c);
        for (int64_t i = 0; i < spatial; i++) {
            const double difference = (double)plane[i] - *mean;
            sum += difference * difference;
        }
    }
    *var = sum / count;
}

/* running = (1 - momentum) running + momentum batch */
static void blend(float *running, double batch, double momentum)
{
    *running = (float)((1.0 - momentum) * (double)*running + momentum * batch);
}

/* The statistics that normalise channel c; in training also updates the running ones. */
static void channel_statistics(const struct ref_call *call, int64_t c, double *mean, double *var)
{
    const struct norm_attr *attr = &call->attr->norm;
    const struct ref_tensor *src = ref_in(call, BN_SRC);
    float *running_mean = ref_in(call, BN_RUNNING_MEAN)->data + c;
    float *running_var = ref_in(call, BN_RUNNING_VAR)->data + c;

    if (!attr->training) {
        *mean = (double)*running_mean;
        *var = (double)*running_var;
        return;
    }
    channel_moments(src, c, mean, var);
    /* A single element has no unbiased variance; its biased one, 0, stands in. */
    const double count = (double)(src->shape.dim[0] * shape_spatial(src->shape));
    const double unbias = count > 1.0 ? count / (count - 1.0) : 1.0;
    blend(running_mean, *mean, (double)attr->momentum);
    blend(running_var, *var * unbias, (double)attr->momentum);
}

void ref_batchnorm(const struct ref_call *call)
{
    const struct norm_attr *attr = &call->attr->norm;
    const struct ref_tensor *src = ref_in(call, BN_SRC);
    const struct ref_tensor *residual = ref_in(call, BN_RESIDUAL);
    const struct ref_tensor *dst = ref_out(call, BN_DST);
    const float *mask = ref_in_data(call, BN_MASK);
    float *mean_out = ref_out_data(call, BN_MEAN);
    float *inv_std_out = ref_out_data(call, BN_INV_STD);
    const int64_t spatial = shape_spatial(src->shape);

    for (int64_t c = 0; c < src->shape.dim[1]; c++) {
        double mean;
        double var;
        channel_statistics(call, c, &mean, &var);
        const double inv_std = 1.0 / sqrt(var + (double)attr->eps);
        const double gamma = (double)ref_in_data(call, BN_GAMMA)[c];
        const double beta = (double)ref_in_data(call, BN_BETA)[c];
        const double m = mask ? (double)mask[c] : 1.0;
        if (mean_out)
            mean_out[c] = (float)mean;
        if (inv_std_out)
            inv_std_out[c] = (float)inv_std;

        for (int64_t n = 0; n < src->shape.dim[0]; n++) {
            const float *x = ref_plane(src, n, c);
            const float *added = residual ? ref_plane(residual, n, c) : NULL;
            float *y = ref_plane(dst, n, c);
            for (int64_t i = 0; i < spatial; i++) {
                double z = m * (gamma * (((double)x[i] - mean) * inv_std) + beta);
                z += added ? (double)added[i] : 0.0;
                y[i] = (float)(attr->relu && z < 0.0 ? 0.0 : z);
            }
        }
    }
}

/* One channel of one sample, as the gradient reads it. */
struct grad_plane {
    const float *d_dst, *d_dst2; /* d_dst2 may be NULL */
    const float *src, *dst;      /* dst: NULL without ReLU */
};

static struct grad_plane grad_plane(const struct ref_call *call, int64_t n, int64_t c)
{
    const struct ref_tensor *d_dst2 = ref_in(call, BNG_D_DST2);
    const struct ref_tensor *dst = ref_in(call, BNG_DST);
    return (struct grad_plane){
        .d_dst = ref_plane(ref_in(call, BNG_D_DST), n, c),
        .d_dst2 = d_dst2 ? ref_plane(d_dst2, n, c) : NULL,
        .src = ref_plane(ref_in(call, BNG_SRC), n, c),
        .dst = call->attr->norm.relu ? ref_plane(dst, n, c) : NULL,
    };
}

/* g = d_dst + d_dst2, 0 where the ReLU was closed */
static double grad_at(const struct grad_plane *plane, int64_t i)
{
    if (plane->dst && plane->dst[i] <= 0.0F)
        return 0.0;
    return (double)plane->d_dst[i] + (plane->d_dst2 ? (double)plane->d_dst2[i] : 0.0);
}

/* What the sums over one channel give. */
struct channel_grad {
    double mean, inv_std;
    double d_gamma; /* sum g x^, before the mask */
    double d_beta;  /* sum g, before the mask */
};

static struct channel_grad channel_grad(const struct ref_call *call, int64_t c)
{
    const struct shape shape = ref_in(call, BNG_SRC)->shape;
    const int64_t spatial = shape_spatial(shape);
    struct channel_grad sums = {
        .mean = (double)ref_in_data(call, BNG_MEAN)[c],
        .inv_std = (double)ref_in_data(call, BNG_INV_STD)[c],
    };

    for (int64_t n = 0; n < shape.dim[0]; n++) {
        const struct grad_plane plane = grad_plane(call, n, c);
        for (int64_t i = 0; i < spatial; i++) {
            const double g = grad_at(&plane, i);
            sums.d_gamma += g * (((double)plane.src[i] - sums.mean) * sums.inv_std);
            sums.d_beta += g;
        }
    }
    return sums;
}

/* training: d_src = gamma mask inv_std (g - (d_beta' + x^ d_gamma') / count)
 * otherwise: d_src = gamma mask inv_std g;     d_residual = g */
static void channel_d_src(const struct ref_call *call, int64_t c, const struct channel_grad *sums,
                          double scale)
{
    const struct ref_tensor *d_src = ref_out(call, BNG_D_SRC);
    const struct ref_tensor *d_residual = ref_out(call, BNG_D_RESIDUAL);
    const struct shape shape = ref_in(call, BNG_SRC)->shape;
    const int64_t spatial = shape_spatial(shape);
    const double count = (double)(shape.dim[0] * spatial);

    for (int64_t n = 0; n < shape.dim[0]; n++) {
        const struct grad_plane plane = grad_plane(call, n, c);
        for (int64_t i = 0; i < spatial; i++) {
            const double g = grad_at(&plane, i);
            const double x = ((double)plane.src[i] - sums->mean) * sums->inv_std;
            const double through_statistics =
                call->attr->norm.training ? (sums->d_beta + x * sums->d_gamma) / count : 0.0;
            if (d_src)
                ref_plane(d_src, n, c)[i] = (float)(scale * (g - through_statistics));
            if (d_residual)
                ref_plane(d_residual, n, c)[i] = (float)g;
        }
    }
}

/* d_gamma = mask d_gamma', d_beta = mask d_beta', d_mask = gamma d_gamma' + beta d_beta' */
void ref_batchnorm_grad(const struct ref_call *call)
{
    const float *mask = ref_in_data(call, BNG_MASK);
    float *d_gamma = ref_out_data(call, BNG_D_GAMMA);
    float *d_beta = ref_out_data(call, BNG_D_BETA);
    float *d_mask = ref_out_data(call, BNG_D_MASK);

    for (int64_t c = 0; c < ref_in(call, BNG_SRC)->shape.dim[1]; c++) {
        const struct channel_grad sums = channel_grad(call, c);
        const double gamma = (double)ref_in_data(call, BNG_GAMMA)[c];
        const double beta = (double)ref_in_data(call, BNG_BETA)[c];
        const double m = mask ? (double)mask[c] : 1.0;

        channel_d_src(call, c, &sums, gamma * m * sums.inv_std);
        if (d_gamma)
            d_gamma[c] = (float)(m * sums.d_gamma);
        if (d_beta)
            d_beta[c] = (float)(m * sums.d_beta);
        if (d_mask)
            d_mask[c] = (float)(gamma * sums.d_gamma + beta * sums.d_beta);
    }
}
