#include "nn/init.h"

#include "core/rng.h"

#include <assert.h>
#include <math.h>

/* Tensors of one module; far more than any network here has. */
enum { STREAM_TENSORS = 4096 };

static void fill(float *dst, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = value;
}

void init_fill(float *dst, struct shape shape, enum param_init init, uint64_t seed, uint32_t stream,
               int index)
{
    assert(index >= 0 && index < STREAM_TENSORS);
    int64_t n = shape_count(shape);
    uint32_t tensor = stream * STREAM_TENSORS + (uint32_t)index;
    double inputs = (double)shape.dim[1];
    switch (init) {
    case INIT_ZERO:
        fill(dst, n, 0.0f);
        return;
    case INIT_ONE:
        fill(dst, n, 1.0f);
        return;
    case INIT_KAIMING_FAN_OUT: {
        /* He et al. 2015, fan_out: std = sqrt(2 / (k_h k_w c_out)). */
        double fan_out = (double)(shape.dim[0] * shape.dim[2] * shape.dim[3]);
        rng_normal(dst, n, sqrt(2.0 / fan_out), seed, RNG_INIT_WEIGHTS, tensor);
        return;
    }
    case INIT_LINEAR_UNIFORM: {
        double bound = 1.0 / sqrt(inputs);
        rng_uniform(dst, n, -bound, bound, seed, RNG_INIT_HEAD, tensor);
        return;
    }
    case INIT_LINEAR_NORMAL:
        rng_normal(dst, n, 1.0 / sqrt(inputs), seed, RNG_INIT_HEAD, tensor);
        return;
    case INIT_STANDARD_NORMAL:
        rng_normal(dst, n, 1.0, seed, RNG_INIT_MASK, tensor);
        return;
    case INIT_UNIFORM_0_2:
        rng_uniform(dst, n, 0.0, 2.0, seed, RNG_INIT_MASK, tensor);
        return;
    }
    assert(!"unknown init");
}
