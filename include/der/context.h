/*
 * The context: everything a piece of work shares, so that the library needs no globals.
 *
 * A context is used by one thread at a time; two contexts are independent of each other.
 * It must outlive every object made with it.
 */
#ifndef DER_CONTEXT_H
#define DER_CONTEXT_H

#include <der/status.h>
#include <stddef.h>
#include <stdint.h>

struct der_ctx;

enum der_log_level { DER_LOG_ERROR, DER_LOG_WARNING, DER_LOG_INFO, DER_LOG_DEBUG };

/* Receives one line without its newline. `text` is borrowed for the length of the call. */
typedef void der_log_fn(void *user, enum der_log_level level, const char *text);

/* Settings of a context. Zero-initialise, then set what differs from the defaults. */
struct der_ctx_options {
    int threads;     /* compute threads; 0 means 1. Results depend on it, so it is never guessed */
    uint64_t seed;   /* every random draw is a pure function of it; 0 is a seed like any other */
    der_log_fn *log; /* NULL: the library stays silent */
    void *log_user;  /* handed to `log` */
    /* Folder for what takes long to make and can be made again: kernels that a GPU's libraries compile at run time. It
     * is made when it is needed, several programs may share it, and all that is in it may be deleted at any time. What is
     * in it is believed, so it has to be the user's own. NULL or "": nothing is kept. Results do not depend on it. */
    const char *cache_dir;
};

/* What the context's allocator has seen so far. */
struct der_memory_stats {
    uint64_t n_allocs; /* calls that asked for memory */
    uint64_t n_live;   /* blocks not yet freed */
    size_t live_bytes; /* bytes not yet freed */
    size_t peak_bytes; /* the largest live_bytes so far */
};

/* Makes a context. `options` may be NULL for the defaults. On failure *out is NULL. */
DER_API DER_NODISCARD enum der_status der_ctx_new(const struct der_ctx_options *options,
                                                  struct der_ctx **out);

/* Frees a context; NULL is allowed. Every object made with it must be gone. */
DER_API void der_ctx_free(struct der_ctx *ctx);

/* The sentence describing the latest failure; "" if there was none. Borrowed until the next
 * failure. */
DER_API const char *der_ctx_error(const struct der_ctx *ctx);

DER_API int der_ctx_threads(const struct der_ctx *ctx);
DER_API struct der_memory_stats der_ctx_memory(const struct der_ctx *ctx);

#endif
