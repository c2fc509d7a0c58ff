/*
 * Device memory. All copies go through the back end's one stream, so that they keep their order with
 * the programs that run there.
 */
#include "backend/cuda/cuda.h"

#include <string.h>

enum der_status cuda_alloc(struct cuda_backend *cuda, size_t bytes, void **out)
{
    struct der_ctx *ctx = cuda->base.ctx;
    *out = NULL;
    if (bytes == 0)
        bytes = 1;
    cudaError_t error = cudaMalloc(out, bytes);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0;
        size_t total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total);
        return ctx_fail(ctx, DER_NOMEM,
                        "the GPU is out of memory: %zu MiB more are wanted, %zu of its %zu MiB are "
                        "free; a smaller batch needs less",
                        bytes >> 20, free_bytes >> 20, total >> 20);
    }
    TRY(cuda_check(ctx, error, "taking memory"));
    enum der_status status =
        cuda_check(ctx, cudaMemsetAsync(*out, 0, bytes, cuda->stream), "clearing memory");
    if (status != DER_OK) {
        (void)cudaFree(*out);
        *out = NULL;
    }
    return status;
}

enum der_status cuda_buffer_new(struct backend *be, size_t bytes, struct buffer **out)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    *out = NULL;
    TRY(cuda_enter(cuda));
    struct buffer *buffer = mem_zalloc(&be->ctx->mem, 1, sizeof *buffer);
    if (!buffer)
        return ctx_nomem(be->ctx);
    *buffer = (struct buffer){.be = be, .bytes = bytes};
    enum der_status status = cuda_alloc(cuda, bytes, &buffer->data);
    if (status != DER_OK) {
        mem_free(&be->ctx->mem, buffer);
        return status;
    }
    *out = buffer;
    return DER_OK;
}

/* cudaFree waits for the device, so nothing that still runs loses its memory. */
void cuda_buffer_free(struct backend *be, struct buffer *buffer)
{
    (void)cudaSetDevice(((struct cuda_backend *)be)->device);
    (void)cudaFree(buffer->data);
    mem_free(&be->ctx->mem, buffer);
}

/* The host has been read when this returns; the device follows in its own time. */
static enum der_status write_piece(struct cuda_backend *cuda, void *dst, const void *host,
                                   size_t bytes)
{
    static const char WHAT[] = "copying to the GPU";
    struct der_ctx *ctx = cuda->base.ctx;
    struct cuda_stage *stage = &cuda->stage[cuda->next_stage];
    cuda->next_stage = (cuda->next_stage + 1) % CUDA_STAGES;
    TRY(cuda_check(ctx, cudaEventSynchronize(stage->done), WHAT));
    memcpy(stage->data, host, bytes);
    TRY(cuda_check(
        ctx, cudaMemcpyAsync(dst, stage->data, bytes, cudaMemcpyHostToDevice, cuda->stream), WHAT));
    return cuda_check(ctx, cudaEventRecord(stage->done, cuda->stream), WHAT);
}

enum der_status cuda_write(struct backend *be, struct buffer *dst, size_t offset, const void *host,
                           size_t bytes)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    if (bytes == 0)
        return DER_OK;
    TRY(cuda_enter(cuda));
    for (size_t at = 0; at < bytes; at += CUDA_STAGE_BYTES) {
        size_t left = bytes - at;
        TRY(write_piece(cuda, (char *)dst->data + offset + at, (const char *)host + at,
                        left < CUDA_STAGE_BYTES ? left : CUDA_STAGE_BYTES));
    }
    return DER_OK;
}

enum der_status cuda_read(struct backend *be, const struct buffer *src, size_t offset, void *host,
                          size_t bytes)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    if (bytes == 0)
        return DER_OK;
    TRY(cuda_enter(cuda));
    TRY(cuda_check(be->ctx,
                   cudaMemcpyAsync(host, (const char *)src->data + offset, bytes,
                                   cudaMemcpyDeviceToHost, cuda->stream),
                   "copying from the GPU"));
    return cuda_sync(be);
}

enum der_status cuda_sync(struct backend *be)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    TRY(cuda_enter(cuda));
    return cuda_check(be->ctx, cudaStreamSynchronize(cuda->stream), "work on the GPU");
}
