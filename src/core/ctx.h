/*
 * The context as the inside of the library sees it: settings, the allocator, the last error.
 */
#ifndef CORE_CTX_H
#define CORE_CTX_H

#include <der/context.h>

#include "core/mem.h"

#include <stdarg.h>

#define NODISCARD DER_NODISCARD

enum { CTX_ERROR_MAX = 768 };

struct der_ctx {
    struct mem mem;            /* every heap block of the library comes from here */
    int threads;               /* compute threads, at least 1 */
    uint64_t seed;             /* root of all random draws */
    char *cache_dir;           /* folder for what can be made again; NULL: none */
    der_log_fn *log;           /* may be NULL */
    void *log_user;            /* argument of `log` */
    char error[CTX_ERROR_MAX]; /* the latest failure, a full sentence without newline */
};

/* Records the sentence for a failure and returns `status`, so that callers can write
 * `return ctx_fail(ctx, DER_SHAPE, "...", ...)`. */
enum der_status ctx_fail(struct der_ctx *ctx, enum der_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Records that memory ran out and returns DER_NOMEM. */
enum der_status ctx_nomem(struct der_ctx *ctx);

/* Sends one line to the log callback, if there is one. */
void ctx_log(struct der_ctx *ctx, enum der_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Passes a failure on to the caller. Only for functions that own nothing at this point. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum der_status try_status_ = (expression);                                                \
        if (try_status_ != DER_OK)                                                                 \
            return try_status_;                                                                    \
    } while (0)

#endif
