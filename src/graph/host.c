#include "graph/host.h"

#include <string.h>

void host_buffer_free(struct backend *be, struct buffer *buffer)
{
    mem_free(&be->ctx->mem, buffer->data);
    mem_free(&be->ctx->mem, buffer);
}

enum der_status host_buffer_new(struct backend *be, size_t bytes, struct buffer **out)
{
    *out = NULL;
    struct buffer *buffer = mem_zalloc(&be->ctx->mem, 1, sizeof *buffer);
    if (!buffer)
        return ctx_nomem(be->ctx);
    *buffer = (struct buffer){.be = be, .bytes = bytes};
    buffer->data = mem_zalloc(&be->ctx->mem, bytes, 1);
    if (!buffer->data) {
        host_buffer_free(be, buffer);
        return ctx_nomem(be->ctx);
    }
    *out = buffer;
    return DER_OK;
}

enum der_status host_write(struct backend *be, struct buffer *dst, size_t offset, const void *host,
                           size_t bytes)
{
    (void)be;
    if (bytes > 0)
        memcpy((char *)dst->data + offset, host, bytes);
    return DER_OK;
}

enum der_status host_read(struct backend *be, const struct buffer *src, size_t offset, void *host,
                          size_t bytes)
{
    (void)be;
    if (bytes > 0)
        memcpy(host, (const char *)src->data + offset, bytes);
    return DER_OK;
}

void host_sequence_drop(struct backend *be, struct sequence *sequence)
{
    (void)be;
    (void)sequence;
}

enum der_status host_sync(struct backend *be)
{
    (void)be;
    return DER_OK;
}
