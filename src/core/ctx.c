#include "core/ctx.h"

#include <stdio.h>

enum { LOG_LINE_MAX = 1024 };

enum der_status ctx_fail(struct der_ctx *ctx, enum der_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(ctx->error, sizeof ctx->error, format, args);
    va_end(args);
    return status;
}

enum der_status ctx_nomem(struct der_ctx *ctx)
{
    return ctx_fail(ctx, DER_NOMEM, "out of memory (%zu bytes in use)",
                    atomic_load(&ctx->mem.live_bytes));
}

void ctx_log(struct der_ctx *ctx, enum der_log_level level, const char *format, ...)
{
    if (!ctx->log)
        return;
    char line[LOG_LINE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, level, line);
}
