#include "io/plan_cache.h"

#include "core/fnv.h"
#include "io/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define PLAN_END ".plan"

enum {
    HASH_DIGITS = 16,
    NAME_CHARS = 64,    /* of a file, or of a temporary one that a killed process left */
    FILE_MAX = 1 << 26, /* bytes */
    HOUR = 3600         /* seconds; nobody writes a file for so long */
};

const struct plan_cache_limits PLAN_CACHE_LIMITS = {.files = 2000, .bytes = (size_t)256 << 20};

struct plan_cache {
    struct der_ctx *ctx;
    const struct io_calls *io;
    const struct plan_cache_limits *limits;
    char *folder;
    bool is_counted; /* the next two are known, but for what others have added since */
    size_t n_files;
    size_t n_bytes;
};

enum der_status plan_cache_open(struct der_ctx *ctx, const struct io_calls *io, const char *folder,
                                const struct plan_cache_limits *limits, struct plan_cache **out)
{
    *out = NULL;
    struct plan_cache *cache = mem_zalloc(&ctx->mem, 1, sizeof *cache);
    if (!cache)
        return ctx_nomem(ctx);
    cache->ctx = ctx;
    cache->io = io ? io : io_calls_plain();
    cache->limits = limits;
    cache->folder = mem_strdup(&ctx->mem, folder);
    if (!cache->folder) {
        plan_cache_close(cache);
        return ctx_nomem(ctx);
    }
    *out = cache;
    return DER_OK;
}

void plan_cache_close(struct plan_cache *cache)
{
    if (!cache)
        return;
    struct mem *mem = &cache->ctx->mem;
    mem_free(mem, cache->folder);
    mem_free(mem, cache);
}

/* FOLDER/HASH.plan; NULL: memory is short. The caller frees it. */
static char *path_of(const struct plan_cache *cache, const char *key)
{
    const size_t capacity = strlen(cache->folder) + NAME_CHARS;
    char *path = mem_alloc(&cache->ctx->mem, capacity, 1);
    if (path)
        (void)snprintf(path, capacity, "%s/%016" PRIx64 PLAN_END, cache->folder,
                       fnv_bytes(FNV_START, key, strlen(key)));
    return path;
}

/* ---- one file ------------------------------------------------------------------------------------------- */

void plan_file_head(char head[PLAN_HEAD_SIZE + 1], const char *key, const char *text, size_t size)
{
    const size_t length = strlen(key);
    const uint64_t sum = fnv_bytes(fnv_bytes(FNV_START, key, length), text, size);
    (void)snprintf(head, PLAN_HEAD_SIZE + 1, "der plan 1 %016zx %016zx %016" PRIx64 "\n", length,
                   size, sum);
}

/* Nothing that a file says is believed: what it would begin with, were it right, is made anew and compared. */
const char *plan_file_text(const char *key, const uint8_t *file, size_t file_size, size_t *size)
{
    char head[PLAN_HEAD_SIZE + 1];
    const size_t length = strlen(key);
    const size_t before = PLAN_HEAD_SIZE + length + 1;
    if (file_size < before)
        return NULL;
    const char *data = (const char *)file;
    plan_file_head(head, key, data + before, file_size - before);
    if (memcmp(data, head, PLAN_HEAD_SIZE) != 0 ||
        memcmp(data + PLAN_HEAD_SIZE, key, length) != 0 || data[before - 1] != '\n')
        return NULL;
    *size = file_size - before;
    return data + before;
}

const char *plan_cache_find(const struct plan_cache *cache, const char *key,
                            struct file_bytes *file, size_t *size)
{
    struct mem *mem = &cache->ctx->mem;
    struct fault fault; /* not the context's: several threads are here */
    const char *text = NULL;
    char *path = path_of(cache, key);
    if (path && file_read(mem, NULL, path, FILE_MAX, file, &fault) == DER_OK)
        text = plan_file_text(key, file->data, file->size, size);
    if (text)
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    mem_free(mem, path);
    return text;
}

/* ---- how much there is ------------------------------------------------------------------------------------ */

struct listed {
    char name[NAME_CHARS];
    struct timespec used;
    size_t bytes;
};

struct listing {
    struct mem *mem;
    struct listed *all;
    size_t n;
    size_t capacity;
    size_t bytes;
};

/* HASH.plan, or .HASH.plan.PID-NUMBER.tmp, while it is written or when its process was killed. */
static bool is_ours(const char *name)
{
    name += name[0] == '.';
    return strspn(name, "0123456789abcdef") == HASH_DIGITS &&
           strncmp(name + HASH_DIGITS, PLAN_END, strlen(PLAN_END)) == 0 &&
           strlen(name) + 1 < NAME_CHARS; /* with the dot */
}

/* Temporary files count when they were left: nobody else would ever remove them. False: memory is short. */
static bool list_file(struct listing *listing, int folder, const char *name)
{
    struct stat info;
    if (!is_ours(name) || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode) || (name[0] == '.' && time(NULL) - info.st_mtim.tv_sec < HOUR))
        return true;
    if (listing->n == listing->capacity) {
        const size_t capacity = listing->capacity > 0 ? 2 * listing->capacity : 64;
        struct listed *all =
            mem_realloc(listing->mem, listing->all, capacity, sizeof *listing->all);
        if (!all)
            return false;
        listing->all = all;
        listing->capacity = capacity;
    }
    struct listed *file = &listing->all[listing->n++];
    memcpy(file->name, name, strlen(name) + 1);
    file->used = info.st_mtim;
    file->bytes = (size_t)info.st_size;
    listing->bytes += file->bytes;
    return true;
}

static enum der_status list_files(struct plan_cache *cache, struct listing *listing)
{
    DIR *dir = opendir(cache->folder);
    if (!dir)
        return io_fail(cache->ctx, "cannot list folder", cache->folder, errno);
    const struct dirent *entry = NULL;
    bool is_short = false;
    do {
        errno = 0; /* the only way to tell the end from an error */
        entry = readdir(dir);
        is_short = entry && !list_file(listing, dirfd(dir), entry->d_name);
    } while (entry && !is_short);
    const int error = errno;
    (void)closedir(dir);
    if (is_short)
        return ctx_nomem(cache->ctx);
    return error != 0 ? io_fail(cache->ctx, "cannot list folder", cache->folder, error) : DER_OK;
}

static int by_use(const void *left, const void *right)
{
    const struct listed *a = left;
    const struct listed *b = right;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool is_full(const struct plan_cache *cache, size_t more)
{
    return cache->n_files + 1 > cache->limits->files ||
           cache->n_bytes + more > cache->limits->bytes;
}

/* Files that were used longest ago, until three quarters of what is allowed are left. What another process has removed
 * already is gone, too. */
static enum der_status remove_oldest(struct plan_cache *cache, struct listing *listing)
{
    if (listing->n > 0)
        qsort(listing->all, listing->n, sizeof *listing->all, by_use);
    const struct plan_cache_limits *limits = cache->limits;
    for (size_t i = 0; i < listing->n && (cache->n_files > limits->files - limits->files / 4 ||
                                          cache->n_bytes > limits->bytes - limits->bytes / 4);
         i++) {
        const struct listed *file = &listing->all[i];
        const size_t capacity = strlen(cache->folder) + 1 + sizeof file->name;
        char *path = mem_alloc(&cache->ctx->mem, capacity, 1);
        if (!path)
            return ctx_nomem(cache->ctx);
        (void)snprintf(path, capacity, "%s/%s", cache->folder, file->name);
        const bool is_gone = cache->io->unlink(cache->io->user, path) == 0 || errno == ENOENT;
        const int error = errno;
        mem_free(&cache->ctx->mem, path);
        if (!is_gone)
            return io_fail(cache->ctx, "cannot remove old plans from", cache->folder, error);
        cache->n_files--;
        cache->n_bytes -= file->bytes;
    }
    return DER_OK;
}

/* Makes room for a file of so many bytes. The folder is looked at when it is not known, or seems to be full. */
static enum der_status make_room(struct plan_cache *cache, size_t bytes)
{
    if (cache->is_counted && !is_full(cache, bytes))
        return DER_OK;
    struct listing listing = {.mem = &cache->ctx->mem};
    enum der_status status = list_files(cache, &listing);
    if (status == DER_OK) {
        cache->n_files = listing.n;
        cache->n_bytes = listing.bytes;
        cache->is_counted = true;
        if (is_full(cache, bytes))
            status = remove_oldest(cache, &listing);
    }
    mem_free(&cache->ctx->mem, listing.all);
    return status;
}

/* ---- storing ------------------------------------------------------------------------------------------------ */

static enum der_status write_file(struct plan_cache *cache, const char *path, const char *key,
                                  const char *text, size_t size)
{
    char head[PLAN_HEAD_SIZE + 1];
    plan_file_head(head, key, text, size);
    const struct {
        const char *data;
        size_t size;
    } parts[] = {{head, PLAN_HEAD_SIZE}, {key, strlen(key)}, {"\n", 1}, {text, size}};
    struct durable *file;
    TRY(durable_open(cache->ctx, cache->io, path, &file));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        enum der_status status = durable_write(file, parts[i].data, parts[i].size);
        if (status != DER_OK) {
            durable_abort(file);
            return status;
        }
    }
    return durable_commit(file);
}

enum der_status plan_cache_store(struct plan_cache *cache, const char *key, const char *text,
                                 size_t size)
{
    const size_t before = PLAN_HEAD_SIZE + strlen(key) + 1;
    if (size > FILE_MAX - before || before + size > cache->limits->bytes / 4)
        return ctx_fail(cache->ctx, DER_ARG, "a plan of %zu bytes is too large to be kept in %s",
                        size, cache->folder);
    TRY(durable_mkdir(cache->ctx, cache->io, cache->folder));
    TRY(make_room(cache, before + size));
    char *path = path_of(cache, key);
    if (!path)
        return ctx_nomem(cache->ctx);
    enum der_status status = write_file(cache, path, key, text, size);
    mem_free(&cache->ctx->mem, path);
    if (status == DER_OK) { /* one that is replaced counts twice until the folder is listed again */
        cache->n_files++;
        cache->n_bytes += before + size;
    }
    return status;
}
