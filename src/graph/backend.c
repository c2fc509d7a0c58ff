#include "graph/backend.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { NAMES_MAX = 64 };

enum der_status backend_open(struct der_ctx *ctx, const char *name,
                             const struct backend_options *options, struct backend **out)
{
    static const struct backend_options defaults = {0};
    *out = NULL;
    char names[NAMES_MAX] = "";
    for (const struct backend_ops *const *ops = backend_list(); *ops; ops++) {
        if (strcmp((*ops)->name, name) == 0)
            return (*ops)->open(ctx, options ? options : &defaults, out);
        size_t used = strlen(names);
        if (used + strlen((*ops)->name) + 3 < sizeof names) {
            if (used)
                memcpy(names + used, ", ", 3);
            strcat(names, (*ops)->name);
        }
    }
    return ctx_fail(ctx, DER_UNSUPPORTED, "back end '%s' is not in this build, which has: %s", name,
                    names);
}

void backend_close(struct backend *be)
{
    if (be)
        be->ops->close(be);
}

enum der_status buffer_new(struct backend *be, size_t bytes, struct buffer **out)
{
    *out = NULL;
    return be->ops->buffer_new(be, bytes, out);
}

void buffer_free(struct buffer *buffer)
{
    if (buffer)
        buffer->be->ops->buffer_free(buffer->be, buffer);
}

static enum der_status check_range(const struct buffer *buffer, size_t offset, size_t bytes)
{
    if (offset > buffer->bytes || bytes > buffer->bytes - offset)
        return ctx_fail(buffer->be->ctx, DER_ARG,
                        "%zu bytes at %zu lie outside a buffer of %zu bytes", bytes, offset,
                        buffer->bytes);
    return DER_OK;
}

enum der_status buffer_write(struct buffer *dst, size_t offset, const void *host, size_t bytes)
{
    TRY(check_range(dst, offset, bytes));
    TRY(dst->be->ops->write(dst->be, dst, offset, host, bytes));
    dst->version++;
    return DER_OK;
}

enum der_status buffer_read(const struct buffer *src, size_t offset, void *host, size_t bytes)
{
    TRY(check_range(src, offset, bytes));
    return src->be->ops->read(src->be, src, offset, host, bytes);
}

enum der_status program_compile(struct backend *be, const struct graph *g, struct program **out)
{
    *out = NULL;
    return be->ops->compile(be, g, out);
}

void program_free(struct program *program)
{
    if (program)
        program->be->ops->program_free(program->be, program);
}

enum der_status program_bind(struct program *program, int value, struct span span)
{
    assert(span.buffer);
    return program->be->ops->bind(program->be, program, value, span);
}

enum der_status sequence_new(struct backend *be, const struct sequence_item *items, int n_items,
                             struct sequence **out)
{
    *out = NULL;
    if (n_items < 1 || n_items > SEQUENCE_MAX)
        return ctx_fail(be->ctx, DER_ARG, "a sequence has 1 to %d programs, not %d", SEQUENCE_MAX,
                        n_items);
    for (int i = 0; i < n_items; i++)
        if (items[i].program->be != be || (i > 0 && items[i].group < items[i - 1].group))
            return ctx_fail(be->ctx, DER_ARG,
                            "program %d of a sequence is out of order or of another back end", i);
    struct sequence *sequence = mem_zalloc(&be->ctx->mem, 1, sizeof *sequence);
    if (!sequence)
        return ctx_nomem(be->ctx);
    sequence->be = be;
    sequence->n_items = n_items;
    sequence->items = mem_alloc(&be->ctx->mem, (size_t)n_items, sizeof *sequence->items);
    if (!sequence->items) {
        mem_free(&be->ctx->mem, sequence);
        return ctx_nomem(be->ctx);
    }
    memcpy(sequence->items, items, (size_t)n_items * sizeof *items);
    *out = sequence;
    return DER_OK;
}

void sequence_free(struct sequence *sequence)
{
    if (!sequence)
        return;
    sequence->be->ops->sequence_drop(sequence->be, sequence);
    struct mem *mem = &sequence->be->ctx->mem;
    mem_free(mem, sequence->items);
    mem_free(mem, sequence);
}

enum der_status sequence_run(struct sequence *sequence)
{
    return sequence->be->ops->run(sequence->be, sequence);
}

enum der_status slot_init(struct der_ctx *ctx, struct arena *arena, const struct value *value,
                          struct slot *out)
{
    *out = (struct slot){.name = arena_strdup(arena, value->name ? value->name : ""),
                         .shape = value->shape,
                         .dtype = value->dtype,
                         .is_external = value->kind == VALUE_EXTERNAL};
    return out->name ? DER_OK : ctx_nomem(ctx);
}

enum der_status slot_require(struct der_ctx *ctx, const struct slot *slot)
{
    if (slot->is_external && !slot->span.buffer)
        return ctx_fail(ctx, DER_STATE, "value '%s' has not been bound to memory", slot->name);
    return DER_OK;
}

enum der_status slot_check(struct der_ctx *ctx, const struct slot *slot, struct span span)
{
    if (!slot->is_external)
        return ctx_fail(ctx, DER_ARG, "'%s' is not an external value and cannot be bound",
                        slot->name);
    size_t element = dtype_bytes(slot->dtype);
    int64_t rows = 1;
    int64_t row = shape_count(slot->shape);
    if (span.pitch != 0) {
        if (slot->shape.rank != 2 || span.pitch < slot->shape.dim[1])
            return ctx_fail(ctx, DER_ARG,
                            "'%s': a pitch of %" PRId64 " fits only matrices of at most that many "
                            "columns",
                            slot->name, span.pitch);
        rows = slot->shape.dim[0];
        row = slot->shape.dim[1];
    }
    size_t needed = ((size_t)(rows - 1) * (size_t)span.pitch + (size_t)row) * element;
    if (span.offset % element != 0 || span.offset > span.buffer->bytes ||
        needed > span.buffer->bytes - span.offset)
        return ctx_fail(ctx, DER_ARG,
                        "'%s': %zu bytes at %zu do not fit into a buffer of %zu bytes", slot->name,
                        needed, span.offset, span.buffer->bytes);
    return DER_OK;
}
