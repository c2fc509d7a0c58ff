#include "store/companion.h"

#include "core/fnv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEX_CHARS = 16, PIECE_BYTES = 1 << 16 };

bool companion_describe(cJSON *object, uint64_t model)
{
    char text[HEX_CHARS + 1];
    (void)snprintf(text, sizeof text, "%016" PRIx64, model);
    return cJSON_AddNumberToObject(object, "format", 1) &&
           cJSON_AddStringToObject(object, "model", text);
}

enum der_status companion_model(struct der_ctx *ctx, const char *source, const cJSON *object,
                                uint64_t *model)
{
    static const char digits[] = "0123456789abcdef";
    const char *text;
    *model = 0;
    TRY(json_get_text(ctx, source, object, "model", &text));
    if (strlen(text) != HEX_CHARS || strspn(text, digits) != HEX_CHARS)
        return ctx_fail(ctx, DER_FORMAT, "%s: 'model' is not a fingerprint of %d digits", source,
                        HEX_CHARS);
    for (int i = 0; i < HEX_CHARS; i++)
        *model = *model << 4 | (uint64_t)(strchr(digits, text[i]) - digits);
    return DER_OK;
}

enum der_status companion_peek(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                               uint64_t *model)
{
    struct safetensors_file *file;
    cJSON *object = NULL;
    *model = 0;
    TRY(safetensors_open(ctx, io, path, &file));
    enum der_status status = text_description(ctx, path, file, &object);
    if (status == DER_OK)
        status = companion_model(ctx, path, object, model);
    json_free(object);
    safetensors_close(file);
    return status;
}

static enum der_status hash_file(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                 int fd, uint8_t *piece, uint64_t *hash)
{
    off_t at = 0;
    *hash = FNV_START;
    for (;;) {
        ssize_t n = io_read_at(io, fd, piece, PIECE_BYTES, at);
        if (n < 0)
            return io_fail(ctx, "cannot read", path, errno);
        if (n == 0)
            return DER_OK;
        *hash = fnv_bytes(*hash, piece, (size_t)n);
        at += n;
    }
}

enum der_status companion_fingerprint(struct der_ctx *ctx, const struct io_calls *io,
                                      const char *path, uint64_t *model)
{
    io = io ? io : io_calls_plain();
    uint8_t *piece = mem_alloc(&ctx->mem, PIECE_BYTES, 1);
    if (!piece)
        return ctx_nomem(ctx);
    int fd = io_open(io, path, O_RDONLY | O_CLOEXEC, 0);
    enum der_status status = fd < 0 ? io_fail(ctx, "cannot open", path, errno)
                                    : hash_file(ctx, io, path, fd, piece, model);
    if (fd >= 0)
        (void)io_close(io, fd);
    mem_free(&ctx->mem, piece);
    return status;
}
