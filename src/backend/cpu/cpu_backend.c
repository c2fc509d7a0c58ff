/*
 * The cpu back end: host memory, oneDNN's engine, and the table that makes it a back end.
 */
#include "backend/cpu/cpu.h"

#include "graph/host.h"

#include <stdio.h>

extern const struct backend_ops cpu_backend;

static void cpu_close(struct backend *be)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    shim_close(cpu->shim);
    mem_free(&be->ctx->mem, cpu->modes);
    mem_free(&be->ctx->mem, cpu);
}

static enum der_status cpu_open(struct der_ctx *ctx, const struct backend_options *options,
                                struct backend **out)
{
    *out = NULL;
    if (options->precision != PRECISION_F32)
        return ctx_fail(ctx, DER_UNSUPPORTED, "back end 'cpu' computes in f32 only");
    struct cpu_backend *cpu = mem_zalloc(&ctx->mem, 1, sizeof *cpu);
    if (!cpu)
        return ctx_nomem(ctx);
    cpu->base = (struct backend){.ops = &cpu_backend, .ctx = ctx};
    cpu->modes = mem_zalloc(&ctx->mem, (size_t)ctx->threads, sizeof *cpu->modes);
    enum der_status status = cpu->modes ? shim_open(ctx, &cpu->shim) : ctx_nomem(ctx);
    if (status != DER_OK) {
        cpu_close(&cpu->base);
        return status;
    }
    *out = &cpu->base;
    return DER_OK;
}

const char *cpu_backend_describe(char *text, size_t size, int threads)
{
    char version[32];
    shim_version(version, sizeof version);
    snprintf(text, size, "oneDNN %s, %d threads", version, threads);
    return text;
}

const struct backend_ops cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .buffer_new = host_buffer_new,
    .buffer_free = host_buffer_free,
    .write = host_write,
    .read = host_read,
    .compile = cpu_compile,
    .program_free = cpu_program_free,
    .bind = cpu_bind,
    .run = cpu_run,
    .sequence_drop = host_sequence_drop,
    .sync = host_sync,
};
