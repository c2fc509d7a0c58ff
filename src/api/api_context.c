/*
 * Life of a context and what a caller may read from it.
 */
#include <der/context.h>

#include "core/ctx.h"

#include <assert.h>

/* Above this a thread count is a mistake, such as an uninitialised field. */
enum { THREADS_MAX = 4096 };

enum der_status der_ctx_new(const struct der_ctx_options *options, struct der_ctx **out)
{
    if (!out)
        return DER_ARG;
    *out = NULL;

    static const struct der_ctx_options defaults = {0};
    if (!options)
        options = &defaults;
    if (options->threads < 0 || options->threads > THREADS_MAX)
        return DER_ARG;

    /* What is the context's own cannot be counted by its allocator: a passing one stands in. */
    struct mem outside;
    mem_init(&outside);
    struct der_ctx *ctx = mem_zalloc(&outside, 1, sizeof *ctx);
    if (!ctx)
        return DER_NOMEM;
    mem_init(&ctx->mem);
    ctx->threads = options->threads > 0 ? options->threads : 1;
    ctx->seed = options->seed;
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    if (options->cache_dir && options->cache_dir[0]) {
        ctx->cache_dir = mem_strdup(&outside, options->cache_dir);
        if (!ctx->cache_dir) {
            der_ctx_free(ctx);
            return DER_NOMEM;
        }
    }
    *out = ctx;
    return DER_OK;
}

void der_ctx_free(struct der_ctx *ctx)
{
    if (!ctx)
        return;
    struct mem outside;
    mem_init(&outside);
    mem_free(&outside, ctx->cache_dir);
    mem_free(&outside, ctx);
}

const char *der_ctx_error(const struct der_ctx *ctx)
{
    return ctx ? ctx->error : "";
}

int der_ctx_threads(const struct der_ctx *ctx)
{
    assert(ctx);
    return ctx->threads;
}

struct der_memory_stats der_ctx_memory(const struct der_ctx *ctx)
{
    assert(ctx);
    return (struct der_memory_stats){
        .n_allocs = atomic_load(&ctx->mem.n_allocs),
        .n_live = atomic_load(&ctx->mem.n_live),
        .live_bytes = atomic_load(&ctx->mem.live_bytes),
        .peak_bytes = atomic_load(&ctx->mem.peak_bytes),
    };
}
