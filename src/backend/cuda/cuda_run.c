/*
 * Binding, and putting the steps of a program on a stream.
 */
#include "backend/cuda/cuda.h"

enum der_status cuda_bind(struct backend *be, struct program *program, int value, struct span span)
{
    struct cuda_program *p = (struct cuda_program *)program;
    if (value < 0 || value >= p->n_values)
        return ctx_fail(be->ctx, DER_ARG, "value %d is none of the program's %d", value,
                        p->n_values);
    TRY(slot_check(be->ctx, &p->values[value].slot, span));
    p->values[value].slot.span = span;
    p->resolved = false;
    for (int i = 0; i < p->n_derived; i++)
        for (int k = 0; k < DERIVED_SOURCES; k++)
            if (p->derived[i].source[k] == value)
                p->derived_fresh = false;
    return DER_OK;
}

struct cuda_rows value_rows(const struct cuda_program *p, const struct cuda_value *value)
{
    if (!value)
        return (struct cuda_rows){0};
    const struct shape *shape = &value->slot.shape;
    struct cuda_rows rows = {.data = value->data, .type = value_type(p, value)};
    if (value->image) {
        rows.rows = shape->dim[0] * shape_spatial(*shape) / (value->sparse ? 4 : 1);
        rows.cols = shape->dim[1];
        rows.stored = rows.pitch = value->stored;
    } else if (shape->rank == 2) {
        rows.rows = shape->dim[0];
        rows.cols = rows.stored = shape->dim[1];
        rows.pitch = value->pitch;
    } else {
        rows.rows = 1;
        rows.cols = rows.stored = rows.pitch = shape_count(*shape);
    }
    return rows;
}

/* ---- addresses ---------------------------------------------------------------------------------- */

static void resolve_owner(const struct cuda_program *p, struct cuda_value *value)
{
    const struct slot *slot = &value->slot;
    value->pitch = slot->shape.rank == 2 ? slot->shape.dim[1] : 1;
    value->data = p->block + value->offset;
    if (!slot->is_external || value->raw)
        return;
    value->outside = (char *)slot->span.buffer->data + slot->span.offset;
    if (!value->image)
        value->data = value->outside;
    if (slot->span.pitch)
        value->pitch = slot->span.pitch;
}

static enum der_status resolve_values(struct cuda_program *p)
{
    for (int v = 0; v < p->n_values; v++) {
        struct cuda_value *value = &p->values[v];
        TRY(slot_require(p->base.be->ctx, &value->slot));
        if (value->owner == v)
            resolve_owner(p, value);
    }
    for (int v = 0; v < p->n_values; v++) {
        struct cuda_value *value = &p->values[v];
        const struct cuda_value *owner = &p->values[value->owner];
        if (value == owner)
            continue;
        value->data = owner->data + (size_t)value->col * sizeof(float);
        value->pitch = owner->pitch;
    }
    return DER_OK;
}

enum der_status cuda_resolve(struct cuda_program *p)
{
    TRY(resolve_values(p));
    for (int i = 0; i < p->n_steps; i++) {
        if (p->steps[i].gemm)
            TRY(cuda_gemm_resolve(p, &p->steps[i]));
        if (p->steps[i].table_bytes > 0)
            cuda_step_table(p, &p->steps[i]);
    }
    cuda_derived_table(p);
    if (p->tables_bytes > 0)
        TRY(cuda_check(p->base.be->ctx,
                       cudaMemcpyAsync(p->block + p->tables_offset, p->tables, p->tables_bytes,
                                       cudaMemcpyHostToDevice, cuda_of(p)->stream),
                       "copying tables to the GPU"));
    p->resolved = true;
    p->epoch++;
    return DER_OK;
}

/* ---- running ------------------------------------------------------------------------------------ */

static struct cuda_image image_of(const struct cuda_program *p, const struct cuda_value *value)
{
    const struct shape *shape = &value->slot.shape;
    return (struct cuda_image){.n = shape->dim[0],
                               .c = shape->dim[1],
                               .area = shape_spatial(*shape),
                               .stored = value->stored,
                               .type = value_type(p, value)};
}

static enum der_status run_step(struct cuda_program *p, const struct cuda_step *step,
                                cudaStream_t stream)
{
    struct der_ctx *ctx = p->base.be->ctx;
    for (int i = 0; i < step->n_import; i++) {
        const struct cuda_value *value = &p->values[step->import[i]];
        const struct cuda_image image = image_of(p, value);
        TRY(cuda_check(ctx, cuda_import_image(value->data, value->outside, &image, stream),
                       "reading an image in"));
    }
    TRY(step->run(p, step, stream));
    for (int i = 0; i < step->n_export; i++) {
        const struct cuda_value *value = &p->values[step->export[i]];
        const struct cuda_image image = image_of(p, value);
        TRY(cuda_check(ctx, cuda_export_image(value->outside, value->data, &image, stream),
                       "writing an image out"));
    }
    return DER_OK;
}

enum der_status cuda_enqueue(struct cuda_program *p, cudaStream_t stream)
{
    for (int i = 0; i < p->n_steps; i++)
        TRY(run_step(p, &p->steps[i], stream));
    return DER_OK;
}

/* `stream` goes on when each of the lanes in the set has come to this point. */
static enum der_status wait_for(struct cuda_backend *cuda, unsigned lanes, cudaStream_t stream)
{
    static const char WHAT[] = "ordering streams";
    struct der_ctx *ctx = cuda->base.ctx;
    for (int lane = 0; lane < N_LANES; lane++) {
        if (!(lanes >> lane & 1U))
            continue;
        cudaStream_t other = lane == LANE_MAIN ? cuda->stream : cuda->lane[lane];
        TRY(cuda_check(ctx, cudaEventRecord(cuda->order, other), WHAT));
        TRY(cuda_check(ctx, cudaStreamWaitEvent(stream, cuda->order, 0), WHAT));
    }
    return DER_OK;
}

enum der_status cuda_enqueue_lanes(struct cuda_program *p, int first, int end)
{
    struct cuda_backend *cuda = cuda_of(p);
    unsigned used = 0; /* lanes of the whole program */
    unsigned seen = 1U << LANE_MAIN;
    for (int i = first; i < end; i++) {
        const struct cuda_step *step = &p->steps[i];
        cudaStream_t stream = step->lane == LANE_MAIN ? cuda->stream : cuda->lane[step->lane];
        /* What the main stream had to wait for before this call, each lane has to as well. */
        const unsigned more = seen >> step->lane & 1U ? 0 : 1U << LANE_MAIN;
        TRY(wait_for(cuda, step->waits | more, stream));
        TRY(run_step(p, step, stream));
        seen |= 1U << step->lane;
    }
    for (int i = 0; i < p->n_steps && end == p->n_steps; i++)
        if (p->steps[i].lane != LANE_MAIN)
            used |= 1U << p->steps[i].lane;
    return wait_for(cuda, used, cuda->stream);
}
