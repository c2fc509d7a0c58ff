/*
 * Plans that took long to make, kept in a folder for the next process that wants the same ones.
 *
 * A plan is text that its maker understands; its key says in words what it was made for and what it depends
 * on. There is one file for each, NAME.plan, where NAME is a hash of the key. The file holds the
 * whole key, the length of the text and a checksum of both: whatever is not exactly what was stored counts
 * as absent. Files are replaced whole (io/durable.h), so that any number of threads and processes may
 * share a folder without a lock. Those that were not used for longest are removed when there are too many.
 *
 * A cache is a help and never a need: nothing that is wrong with its folder keeps anyone from working.
 */
#ifndef IO_PLAN_CACHE_H
#define IO_PLAN_CACHE_H

#include "core/file.h"
#include "io/io_calls.h"

struct plan_cache;

/* What a folder may come to. When it is exceeded, a quarter of it is freed. */
struct plan_cache_limits {
    size_t files;
    size_t bytes;
};

extern const struct plan_cache_limits PLAN_CACHE_LIMITS; /* 2000 files, 256 MB */

/* The folder need not be there. `io`, which may be NULL, and `limits` must outlive the cache. */
NODISCARD enum der_status plan_cache_open(struct der_ctx *ctx, const struct io_calls *io,
                                          const char *folder,
                                          const struct plan_cache_limits *limits,
                                          struct plan_cache **out);
void plan_cache_close(struct plan_cache *cache); /* NULL is allowed */

/* The text that is kept under a key, as part of `file`, or NULL: there is none, it cannot be read or memory is
 * short. A zero byte follows the text. The caller frees `file`, which starts as {0}, in any case. Several threads may
 * look at once: nothing is written but the time of the file, which says that it is in use. */
const char *plan_cache_find(const struct plan_cache *cache, const char *key,
                            struct file_bytes *file, size_t *size);

/* Keeps a text under a key; makes the folder, and those that it lies in. Only for the thread that has the context.
 * After a failure nothing is kept, or what was kept before. */
NODISCARD enum der_status plan_cache_store(struct plan_cache *cache, const char *key,
                                           const char *text, size_t size);

/* What a file begins with: a format number, the lengths of key and text, and a checksum of both. */
enum { PLAN_HEAD_SIZE = 62 };
void plan_file_head(char head[PLAN_HEAD_SIZE + 1], const char *key, const char *text, size_t size);

/* The text in a file that was stored under `key`; NULL: it is not such a file, to the last byte. */
const char *plan_file_text(const char *key, const uint8_t *file, size_t file_size, size_t *size);

#endif
