/*
 * Binding and running: addresses are looked up when a binding has changed, then steps run in order.
 */
#include "backend/cpu/cpu.h"

enum der_status cpu_bind(struct backend *be, struct program *program, int value, struct span span)
{
    struct cpu_program *p = (struct cpu_program *)program;
    if (value < 0 || value >= p->n_values)
        return ctx_fail(be->ctx, DER_ARG, "value %d is none of the program's %d", value,
                        p->n_values);
    TRY(slot_check(be->ctx, &p->values[value].slot, span));
    p->values[value].slot.span = span;
    p->resolved = false;
    for (int i = 0; i < p->n_derived; i++)
        for (int k = 0; k < DERIVED_SOURCES; k++)
            if (p->derived[i].source[k] == value)
                p->derived[i].fresh = false;
    return DER_OK;
}

static void resolve_owner(const struct cpu_program *p, struct cpu_value *value)
{
    const struct slot *slot = &value->slot;
    value->pitch = slot->shape.rank == 2 ? slot->shape.dim[1] : 1;
    if (!slot->is_external) {
        value->data = (float *)(void *)(p->block + value->offset);
        return;
    }
    value->data = (float *)(void *)((char *)slot->span.buffer->data + slot->span.offset);
    if (slot->span.pitch)
        value->pitch = slot->span.pitch;
}

static enum der_status resolve(struct cpu_program *p)
{
    for (int v = 0; v < p->n_values; v++) {
        struct cpu_value *value = &p->values[v];
        TRY(slot_require(p->base.be->ctx, &value->slot));
        if (value->owner == v)
            resolve_owner(p, value);
    }
    for (int v = 0; v < p->n_values; v++) {
        struct cpu_value *value = &p->values[v];
        const struct cpu_value *owner = &p->values[value->owner];
        if (value == owner)
            continue;
        value->data = owner->data + value->col;
        value->pitch = owner->pitch;
    }
    p->resolved = true;
    return DER_OK;
}

static enum der_status run_program(struct cpu_program *p)
{
    int saved = cpu_threads_enter(p->threads);
    enum der_status status = DER_OK;
    for (int i = 0; i < p->n_steps && status == DER_OK; i++)
        status = p->steps[i].run(p, &p->steps[i]);
    cpu_threads_leave(saved);
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].slot.is_external && p->values[v].slot.written)
            p->values[v].slot.span.buffer->version++;
    return status;
}

enum der_status cpu_run(struct backend *be, struct sequence *sequence)
{
    (void)be;
    for (int i = 0; i < sequence->n_items; i++) {
        struct cpu_program *p = (struct cpu_program *)sequence->items[i].program;
        if (!p->resolved)
            TRY(resolve(p));
    }
    for (int i = 0; i < sequence->n_items; i++)
        TRY(run_program((struct cpu_program *)sequence->items[i].program));
    return DER_OK;
}
