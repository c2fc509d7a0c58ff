/*
 * The constants of an ONNX graph: batch norm folded into the convolution before it.
 *
 *     conv'(x) = conv(x, w a) + b,  a = gamma / sqrt(var + eps),  b = beta - mean a, by output channel
 */
#include "exchange/onnx_parts.h"

#include <math.h>
#include <string.h>

enum { GAMMA, BETA, MEAN, VAR, NORM_PARTS };

/* norm [NORM_PARTS, n]. */
static enum der_status read_norm(const struct onnx_constant *c, float *norm, int64_t n)
{
    const int parts[NORM_PARTS] = {c->gamma, c->beta, c->mean, c->var};
    for (int i = 0; i < NORM_PARTS; i++)
        TRY(param_read(c->set, parts[i], norm + i * n));
    return DER_OK;
}

/* dst: [n, ...] weights, which are scaled in place, or room for [n] biases. */
static void fold(const struct onnx_constant *c, const float *norm, int64_t n, float *dst)
{
    int64_t row = shape_count(c->shape) / n;
    for (int64_t k = 0; k < n; k++) {
        double a = (double)norm[GAMMA * n + k] / sqrt((double)norm[VAR * n + k] + (double)c->eps);
        if (c->source == ONNX_SHIFT)
            dst[k] = (float)((double)norm[BETA * n + k] - (double)norm[MEAN * n + k] * a);
        for (int64_t i = 0; i < row && c->source == ONNX_FOLDED; i++)
            dst[k * row + i] = (float)((double)dst[k * row + i] * a);
    }
}

enum der_status onnx_compute(struct der_ctx *ctx, const struct onnx_constant *c, float *dst)
{
    int64_t n = c->shape.dim[0];
    if (c->source == ONNX_GIVEN) {
        memcpy(dst, c->given, (size_t)shape_count(c->shape) * sizeof *dst);
        return DER_OK;
    }
    if (c->source != ONNX_SHIFT)
        TRY(param_read(c->set, c->weights, dst));
    if (c->source == ONNX_PARAM)
        return DER_OK;
    float *norm = mem_alloc(&ctx->mem, (size_t)n * NORM_PARTS, sizeof *norm);
    if (!norm)
        return ctx_nomem(ctx);
    enum der_status status = read_norm(c, norm, n);
    if (status == DER_OK)
        fold(c, norm, n, dst);
    mem_free(&ctx->mem, norm);
    return status;
}
