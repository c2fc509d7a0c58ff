/*
 * Weights derived from parameters: channels last and in eights, in the type of the images, perhaps
 * with a batch norm folded in. Forward and data gradient share one copy. A program refreshes all of
 * its copies in one launch.
 */
#include "backend/cuda/cuda.h"

#include <string.h>

static struct cuda_derived describe(const struct cuda_program *p, const struct cuda_step *step)
{
    const struct node *node = &step->node;
    const struct cuda_conv_shape *shape = &step->conv->shape;
    int weights = node->in[node->op == OP_CONV2D_AFFINE ? (int)AFFINE_WEIGHTS : (int)CONV_WEIGHTS];
    const int64_t *dim = p->values[weights].slot.shape.dim;
    struct cuda_derived derived = {
        .source = {weights, NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE},
        .shape = {.k = dim[0],
                  .c = dim[1],
                  .area = dim[2] * dim[3],
                  .k_stored = shape->k,
                  .c_stored = shape->c},
    };
    if (node->op == OP_CONV2D_AFFINE) {
        derived.shape.eps = node->attr.conv.eps;
        for (int i = 1; i < DERIVED_SOURCES; i++)
            derived.source[i] = node->in[AFFINE_WEIGHTS + i];
    }
    for (int i = 0; i < DERIVED_SOURCES; i++)
        derived.inside |=
            derived.source[i] != NO_VALUE && !p->values[derived.source[i]].slot.is_external;
    return derived;
}

enum der_status cuda_derived_find(struct cuda_program *p, const struct cuda_step *step, int *out)
{
    const size_t element = p->type == CUDA_BF16 ? 2 : 4;
    struct cuda_derived derived = describe(p, step);
    for (int i = 0; i < p->n_derived; i++) {
        const struct cuda_derived *other = &p->derived[i];
        if (memcmp(other->source, derived.source, sizeof derived.source) == 0 &&
            other->shape.eps == derived.shape.eps &&
            other->shape.k_stored == derived.shape.k_stored &&
            other->shape.c_stored == derived.shape.c_stored) {
            *out = i;
            return DER_OK;
        }
    }
    derived.offset = p->derived_bytes;
    p->derived_bytes += cuda_aligned(
        (size_t)(derived.shape.k_stored * derived.shape.area * derived.shape.c_stored) * element);
    derived.bias_offset = p->derived_bytes;
    p->derived_bytes += cuda_aligned((size_t)derived.shape.k_stored * sizeof(float));
    p->base.stats.n_reorders_weights++;
    *out = p->n_derived;
    p->derived[p->n_derived++] = derived;
    return DER_OK;
}

/* Weights from outside come first in the table and are refreshed together; the others one by one. */
void cuda_derived_finish(struct cuda_program *p)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < p->n_derived; i++) {
            struct cuda_derived *derived = &p->derived[i];
            if (derived->inside != (pass == 1))
                continue;
            derived->position = n++;
            if (derived->inside)
                continue;
            p->n_derived_outside++;
            if (p->derived_rows < derived->shape.k_stored)
                p->derived_rows = derived->shape.k_stored;
        }
}

/* ---- addresses ---------------------------------------------------------------------------------------- */

struct cuda_weights cuda_derived_row(const struct cuda_program *p, int index)
{
    char *start = p->block + p->derived_offset;
    const struct cuda_derived *derived = &p->derived[index];
    struct cuda_weights row = derived->shape;
    const float *source[DERIVED_SOURCES] = {NULL};
    for (int k = 0; k < DERIVED_SOURCES; k++)
        if (derived->source[k] != NO_VALUE)
            source[k] = (const float *)(void *)p->values[derived->source[k]].data;
    row.src = source[0];
    row.gamma = source[1];
    row.beta = source[2];
    row.mean = source[3];
    row.var = source[4];
    row.dst = start + derived->offset;
    row.bias = (float *)(void *)(start + derived->bias_offset);
    return row;
}

void cuda_derived_table(struct cuda_program *p)
{
    for (int i = 0; i < p->n_derived; i++) {
        const struct cuda_weights row = cuda_derived_row(p, i);
        memcpy(p->tables + p->derived_table + (size_t)p->derived[i].position * sizeof row, &row,
               sizeof row);
    }
}

/* ---- refreshing ---------------------------------------------------------------------------------------- */

static const struct cuda_weights *table_at(const struct cuda_program *p, int position)
{
    return (const struct cuda_weights *)(void *)(p->block + p->tables_offset + p->derived_table) +
           position;
}

enum der_status cuda_derived_refresh(struct cuda_program *p, cudaStream_t stream)
{
    if (p->n_derived_outside == 0)
        return DER_OK;
    return cuda_check(
        p->base.be->ctx,
        cuda_derive_weights(table_at(p, 0), p->n_derived_outside, p->derived_rows, p->type, stream),
        "preparing weights");
}

enum der_status cuda_derived_refresh_one(struct cuda_program *p, int index, cudaStream_t stream)
{
    const struct cuda_derived *derived = &p->derived[index];
    return cuda_check(p->base.be->ctx,
                      cuda_derive_weights(table_at(p, derived->position), 1,
                                          derived->shape.k_stored, p->type, stream),
                      "preparing weights");
}

/* Versions only grow, so that their sum tells whether one has moved. */
static uint64_t versions_of(const struct cuda_program *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->n_derived; i++)
        for (int k = 0; k < DERIVED_SOURCES; k++) {
            int source = p->derived[i].source[k];
            if (source != NO_VALUE && p->values[source].slot.is_external)
                sum += p->values[source].slot.span.buffer->version;
        }
    return sum;
}

bool cuda_derived_is_stale(const struct cuda_program *p)
{
    return !p->derived_fresh || versions_of(p) != p->derived_sum;
}

void cuda_derived_note(struct cuda_program *p)
{
    p->derived_fresh = true;
    p->derived_sum = versions_of(p);
}
