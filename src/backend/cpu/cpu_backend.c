/*
 * The cpu back end: host memory, oneDNN's engine, and the table that makes it a back end.
 */
#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

extern const struct backend_ops cpu_backend;

static void cpu_close(struct backend *be)
{
    struct cpu_backend *cpu = (struct cpu_backend *)be;
    shim_close(cpu->shim);
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
    enum der_status status = shim_open(ctx, &cpu->shim);
    if (status != DER_OK) {
        mem_free(&ctx->mem, cpu);
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

static void cpu_buffer_free(struct backend *be, struct buffer *buffer)
{
    mem_free(&be->ctx->mem, buffer->data);
    mem_free(&be->ctx->mem, buffer);
}

static enum der_status cpu_buffer_new(struct backend *be, size_t bytes, struct buffer **out)
{
    *out = NULL;
    struct buffer *buffer = mem_zalloc(&be->ctx->mem, 1, sizeof *buffer);
    if (!buffer)
        return ctx_nomem(be->ctx);
    *buffer = (struct buffer){.be = be, .bytes = bytes};
    buffer->data = mem_zalloc(&be->ctx->mem, bytes, 1);
    if (!buffer->data) {
        mem_free(&be->ctx->mem, buffer);
        return ctx_nomem(be->ctx);
    }
    *out = buffer;
    return DER_OK;
}

static enum der_status cpu_write(struct backend *be, struct buffer *dst, size_t offset,
                                 const void *host, size_t bytes)
{
    (void)be;
    memcpy((char *)dst->data + offset, host, bytes);
    return DER_OK;
}

static enum der_status cpu_read(struct backend *be, const struct buffer *src, size_t offset,
                                void *host, size_t bytes)
{
    (void)be;
    memcpy(host, (const char *)src->data + offset, bytes);
    return DER_OK;
}

static void cpu_sequence_drop(struct backend *be, struct sequence *sequence)
{
    (void)be;
    (void)sequence;
}

static enum der_status cpu_sync(struct backend *be)
{
    (void)be;
    return DER_OK;
}

const struct backend_ops cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .buffer_new = cpu_buffer_new,
    .buffer_free = cpu_buffer_free,
    .write = cpu_write,
    .read = cpu_read,
    .compile = cpu_compile,
    .program_free = cpu_program_free,
    .bind = cpu_bind,
    .run = cpu_run,
    .sequence_drop = cpu_sequence_drop,
    .sync = cpu_sync,
};
