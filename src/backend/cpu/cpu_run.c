/*
 * Binding and running: addresses are looked up when a binding has changed, then steps run in order.
 *
 * Programs of a group usually run one after the other, each on all threads. Those of single pictures have
 * steps of some microseconds, too short to share out; where they are many they run side by side instead, each
 * on a thread of its own.
 */
#include "backend/cpu/cpu.h"

#include "backend/cpu/cpu_tile.h"

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

static enum der_status run_steps(struct cpu_program *p)
{
    for (int i = 0; i < p->n_steps; i++)
        TRY(p->steps[i].run(p, &p->steps[i]));
    return DER_OK;
}

static void note_written(const struct cpu_program *p)
{
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].slot.is_external && p->values[v].slot.written)
            p->values[v].slot.span.buffer->version++;
}

static enum der_status run_program(struct cpu_program *p)
{
    int saved = cpu_threads_enter(p->threads);
    enum der_status status = run_steps(p);
    cpu_threads_leave(saved);
    note_written(p);
    return status;
}

static struct cpu_program *program_at(const struct sequence *sequence, int item)
{
    return (struct cpu_program *)sequence->items[item].program;
}

/* Is it worth it, and are they such that it changes no bit? */
static bool may_run_abreast(const struct sequence *sequence, int first, int end, int threads)
{
    if (threads < 2 || end - first < 2 || 2 * (end - first) <= threads)
        return false;
    for (int i = first; i < end; i++)
        if (!program_at(sequence, i)->own)
            return false;
    return true;
}

static void run_abreast(const struct sequence *sequence, int first, int end, int threads)
{
    CPU_PRAGMA(omp parallel for num_threads(threads) schedule(dynamic, 1))
    for (int i = first; i < end; i++) {
        struct cpu_program *p = program_at(sequence, i);
        p->threads = 1;
        (void)run_steps(p); /* own kernels do not fail */
        p->threads = threads;
    }
    for (int i = first; i < end; i++)
        note_written(program_at(sequence, i));
}

static enum der_status run_group(struct sequence *sequence, int first, int end)
{
    int threads = program_at(sequence, first)->threads;
    if (may_run_abreast(sequence, first, end, threads)) {
        run_abreast(sequence, first, end, threads);
        return DER_OK;
    }
    for (int i = first; i < end; i++)
        TRY(run_program(program_at(sequence, i)));
    return DER_OK;
}

static enum der_status run_groups(struct sequence *sequence)
{
    for (int first = 0, end; first < sequence->n_items; first = end) {
        end = first + 1;
        while (end < sequence->n_items &&
               sequence->items[end].group == sequence->items[first].group)
            end++;
        TRY(run_group(sequence, first, end));
    }
    return DER_OK;
}

enum der_status cpu_run(struct backend *be, struct sequence *sequence)
{
    uint64_t *modes = ((struct cpu_backend *)be)->modes;
    for (int i = 0; i < sequence->n_items; i++)
        if (!program_at(sequence, i)->resolved)
            TRY(resolve(program_at(sequence, i)));
    cpu_denormals_begin(modes, be->ctx->threads);
    enum der_status status = run_groups(sequence);
    cpu_denormals_end(modes, be->ctx->threads);
    return status;
}
