/*
 * Weights derived from parameters: another layout, full blocks of channels, a folded batch norm.
 *
 * Parameters stay canonical; a program keeps what its primitives want beside them, and remembers
 * the versions of the buffers it was made from. Frozen extractors refresh once, a trained one
 * after every update.
 */
#include "backend/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

size_t cpu_canonical_bytes(const struct conv_geometry *geometry)
{
    return cpu_aligned((size_t)(geometry->k * geometry->c * geometry->r * geometry->s) *
                       sizeof(float));
}

static struct cpu_derived describe(const struct cpu_step *step)
{
    const struct node *node = &step->node;
    struct cpu_derived derived = {
        .source = {cpu_conv_operands(node).weights, NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE},
        .folded = node->op == OP_CONV2D_AFFINE,
        .k = step->conv->geometry.k,
        .c = step->conv->geometry.c,
        .kind = step->conv->kind,
        .conv = step->conv->primitive,
        .backward = node->op == OP_CONV2D_D_SRC,
    };
    if (derived.folded) {
        derived.eps = node->attr.conv.eps;
        for (int i = 1; i < DERIVED_SOURCES; i++)
            derived.source[i] = node->in[AFFINE_WEIGHTS + i];
    }
    return derived;
}

static bool serves(const struct cpu_derived *a, const struct cpu_derived *b)
{
    if (a->folded || b->folded || a->source[0] != b->source[0] || a->k != b->k || a->c != b->c ||
        a->kind != b->kind)
        return false;
    return a->kind == CONV_BY_DNNL ? shim_conv_same_weights(a->conv, b->conv)
                                   : a->backward == b->backward;
}

enum der_status cpu_derived_find(struct cpu_program *p, const struct cpu_step *step, int *out)
{
    const struct cpu_conv *conv = step->conv;
    const struct conv_info *info = &conv->info;
    struct cpu_derived derived = describe(step);
    *out = -1;
    if (info->canonical_weights && !derived.folded && !conv->padded)
        return DER_OK;
    for (int i = 0; i < p->n_derived; i++) {
        if (serves(&p->derived[i], &derived)) {
            *out = i;
            return DER_OK;
        }
    }
    if (!info->canonical_weights && derived.kind == CONV_BY_DNNL)
        TRY(shim_reorder_weights(cpu_backend_of(p)->shim, conv->primitive, false,
                                 &derived.reorder));
    derived.offset = p->derived_bytes;
    p->derived_bytes += cpu_aligned(info->weights_bytes);
    if (derived.folded) {
        derived.bias_offset = p->derived_bytes;
        p->derived_bytes += cpu_aligned((size_t)derived.k * sizeof(float));
    }
    p->base.stats.n_reorders_weights += derived.reorder || derived.kind != CONV_BY_DNNL;
    *out = p->n_derived;
    p->derived[p->n_derived++] = derived;
    return DER_OK;
}

/* True, with the versions noted, when a source has changed since the last time. */
static bool is_stale(const struct cpu_program *p, struct cpu_derived *derived)
{
    bool stale = !derived->fresh;
    for (int i = 0; i < DERIVED_SOURCES; i++) {
        if (derived->source[i] == NO_VALUE)
            continue;
        const struct slot *slot = &p->values[derived->source[i]].slot;
        /* Weights that the program itself computes are new in every run. */
        if (!slot->is_external) {
            stale = true;
            continue;
        }
        stale = stale || slot->span.buffer->version != derived->version[i];
        derived->version[i] = slot->span.buffer->version;
    }
    derived->fresh = true;
    return stale;
}

/* dst [k, c, area] = scale[k] * weights of fewer channels, zeros elsewhere. */
static void stage_weights(float *dst, const struct cpu_derived *derived, const float *weights,
                          struct shape shape, const float *scale)
{
    int64_t area = shape.dim[2] * shape.dim[3];
    int64_t row = shape.dim[1] * area;
    for (int64_t k = 0; k < derived->k; k++) {
        float *to = dst + k * derived->c * area;
        int64_t used = k < shape.dim[0] ? row : 0;
        const float *from = weights + k * row;
        float factor = used && scale ? scale[k] : 1.0f;
        for (int64_t i = 0; i < used; i++)
            to[i] = factor * from[i];
        memset(to + used, 0, (size_t)(derived->c * area - used) * sizeof *to);
    }
}

/* a = gamma / sqrt(var + eps) into bias for the moment; stage_weights needs it first. */
static void fold_scale(float *scale, const struct cpu_derived *derived, const float *gamma,
                       const float *var, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        scale[k] = (float)(gamma[k] / sqrt((double)var[k] + derived->eps));
}

/* b = beta - mean a, over the a that stands there. */
static void fold_bias(float *bias, const struct cpu_derived *derived, const float *beta,
                      const float *mean, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        bias[k] = (float)(beta[k] - (double)mean[k] * bias[k]);
    memset(bias + n, 0, (size_t)(derived->k - n) * sizeof *bias);
}

enum der_status cpu_derived_refresh(struct cpu_program *p, struct cpu_derived *derived,
                                    float *stage, void *scratch)
{
    if (!is_stale(p, derived))
        return DER_OK;
    const struct cpu_value *weights = &p->values[derived->source[0]];
    struct shape shape = weights->slot.shape;
    float *dst = (float *)(void *)(p->derived_block + derived->offset);
    float *bias = (float *)(void *)(p->derived_block + derived->bias_offset);
    float *canonical = weights->data;
    if (derived->folded || derived->k != shape.dim[0] || derived->c != shape.dim[1]) {
        canonical = derived->reorder || derived->kind != CONV_BY_DNNL ? stage : dst;
        if (derived->folded)
            fold_scale(bias, derived, p->values[derived->source[1]].data,
                       p->values[derived->source[4]].data, shape.dim[0]);
        stage_weights(canonical, derived, weights->data, shape, derived->folded ? bias : NULL);
        if (derived->folded)
            fold_bias(bias, derived, p->values[derived->source[2]].data,
                      p->values[derived->source[3]].data, shape.dim[0]);
    }
    if (derived->kind == CONV_BY_WINOGRAD)
        cpu_winograd_weights(dst, canonical, derived->k, derived->c, derived->backward, p->threads);
    if (derived->kind == CONV_BY_DIRECT)
        cpu_direct_weights(dst, canonical, derived->k, derived->c, shape.dim[2], p->threads);
    assert(derived->reorder || derived->kind != CONV_BY_DNNL || canonical == dst);
    if (!derived->reorder)
        return DER_OK;
    return shim_reorder_run(derived->reorder, canonical, dst, scratch);
}
