#include "support/golden_run.h"

#include "support/test_ctx.h"

#include <stdlib.h>

void golden_rig_init(struct golden_rig *rig, const struct backend_ops *ops)
{
    /* Two threads: enough to divide work, and no more than any machine has. */
    rig->ctx = test_ctx_new(2);
    assert_ok(rig->ctx, backend_open(rig->ctx, ops->name, NULL, &rig->be));
}

void golden_rig_fini(struct golden_rig *rig)
{
    backend_close(rig->be);
    test_ctx_free(rig->ctx);
}

static size_t value_bytes(const struct graph *g, int value)
{
    const struct value *v = &g->values[value];
    return (size_t)shape_count(v->shape) * dtype_bytes(v->dtype);
}

void golden_run_init(struct golden_run *run, const struct golden_rig *rig, const struct graph *g)
{
    *run = (struct golden_run){.g = g};
    assert_ok(rig->ctx, program_compile(rig->be, g, &run->program));
    run->buffers = calloc((size_t)g->n_values, sizeof *run->buffers);
    assert_non_null(run->buffers);
    for (int i = 0; i < g->n_values; i++) {
        if (g->values[i].kind != VALUE_EXTERNAL)
            continue;
        assert_ok(rig->ctx, buffer_new(rig->be, value_bytes(g, i), &run->buffers[i]));
        struct span span = {.buffer = run->buffers[i]};
        assert_ok(rig->ctx, program_bind(run->program, i, span));
    }
    struct sequence_item item = {.program = run->program};
    assert_ok(rig->ctx, sequence_new(rig->be, &item, 1, &run->sequence));
}

void golden_run_fini(struct golden_run *run)
{
    sequence_free(run->sequence);
    program_free(run->program);
    for (int i = 0; run->buffers && i < run->g->n_values; i++)
        buffer_free(run->buffers[i]);
    free(run->buffers);
    *run = (struct golden_run){0};
}

void golden_run_write(struct golden_run *run, int value, const void *host)
{
    assert_non_null(run->buffers[value]);
    assert_ok(run->g->ctx, buffer_write(run->buffers[value], 0, host, value_bytes(run->g, value)));
}

void golden_run_scalar(struct golden_run *run, int value, float scalar)
{
    golden_run_write(run, value, &scalar);
}

void *golden_run_read(const struct golden_run *run, int value)
{
    assert_non_null(run->buffers[value]);
    size_t bytes = value_bytes(run->g, value);
    void *host = malloc(bytes);
    assert_non_null(host);
    assert_ok(run->g->ctx, buffer_read(run->buffers[value], 0, host, bytes));
    return host;
}

float golden_run_read_scalar(const struct golden_run *run, int value)
{
    float scalar;
    assert_int_equal(shape_count(run->g->values[value].shape), 1);
    assert_ok(run->g->ctx, buffer_read(run->buffers[value], 0, &scalar, sizeof scalar));
    return scalar;
}

void golden_run_once(struct golden_run *run)
{
    assert_ok(run->g->ctx, sequence_run(run->sequence));
}
