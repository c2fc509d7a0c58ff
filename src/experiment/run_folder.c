#include "experiment/run_folder.h"

#include "io/appender.h"
#include "io/durable.h"
#include "io/lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct run_folder {
    struct der_ctx *ctx;
    char *path;
    struct folder_lock *lock;
    struct appender *metrics;
};

/* path/name; caller frees with mem_free, NULL when memory is short. */
static char *join(struct der_ctx *ctx, const char *path, const char *name)
{
    size_t size = strlen(path) + strlen(name) + 2;
    char *joined = mem_alloc(&ctx->mem, size, 1);
    if (joined)
        (void)snprintf(joined, size, "%s/%s", path, name);
    return joined;
}

static enum der_status make_folder(struct der_ctx *ctx, const char *path)
{
    struct stat facts;
    if (mkdir(path, 0777) == 0)
        return DER_OK;
    if (errno != EEXIST)
        return ctx_fail(ctx, DER_IO, "cannot make the folder %s: %s", path, strerror(errno));
    if (stat(path, &facts) != 0 || !S_ISDIR(facts.st_mode))
        return ctx_fail(ctx, DER_IO, "%s is not a folder", path);
    return DER_OK;
}

static enum der_status write_config(struct run_folder *folder, const cJSON *config)
{
    struct der_ctx *ctx = folder->ctx;
    char *path = join(ctx, folder->path, "config.json");
    char *text = NULL;
    enum der_status status = path ? DER_OK : ctx_nomem(ctx);
    if (status == DER_OK && access(path, F_OK) == 0)
        status =
            ctx_fail(ctx, DER_ARG, "%s holds a run already; choose another folder", folder->path);
    if (status == DER_OK)
        status = json_print(ctx, config, true, &text);
    if (status == DER_OK)
        status = durable_write_file(ctx, NULL, path, text, strlen(text));
    mem_free(&ctx->mem, text);
    mem_free(&ctx->mem, path);
    return status;
}

static enum der_status open_metrics(struct run_folder *folder)
{
    char *path = join(folder->ctx, folder->path, "metrics.jsonl");
    if (!path)
        return ctx_nomem(folder->ctx);
    enum der_status status = appender_open(folder->ctx, NULL, path, 0, &folder->metrics);
    mem_free(&folder->ctx->mem, path);
    return status;
}

static enum der_status fill(struct run_folder *folder, const char *path, const cJSON *config)
{
    struct der_ctx *ctx = folder->ctx;
    folder->path = mem_strdup(&ctx->mem, path);
    if (!folder->path)
        return ctx_nomem(ctx);
    TRY(make_folder(ctx, path));
    TRY(folder_lock_take(ctx, path, &folder->lock));
    TRY(durable_sweep(ctx, path));
    TRY(write_config(folder, config));
    return open_metrics(folder);
}

enum der_status run_folder_create(struct der_ctx *ctx, const char *path, const cJSON *config,
                                  struct run_folder **out)
{
    *out = NULL;
    struct run_folder *folder = mem_zalloc(&ctx->mem, 1, sizeof *folder);
    if (!folder)
        return ctx_nomem(ctx);
    folder->ctx = ctx;
    enum der_status status = fill(folder, path, config);
    if (status != DER_OK) {
        run_folder_close(folder);
        return status;
    }
    *out = folder;
    return DER_OK;
}

enum der_status run_folder_record(struct run_folder *folder, struct der_ctx *ctx, cJSON *object)
{
    char *line = NULL;
    if (!object)
        return ctx_nomem(ctx);
    enum der_status status = folder ? json_print(ctx, object, false, &line) : DER_OK;
    json_free(object);
    if (folder && status == DER_OK)
        status = appender_line(folder->metrics, line);
    mem_free(&ctx->mem, line);
    return status;
}

enum der_status run_folder_sync(struct run_folder *folder)
{
    return folder ? appender_sync(folder->metrics) : DER_OK;
}

void run_folder_close(struct run_folder *folder)
{
    if (!folder)
        return;
    appender_close(folder->metrics);
    folder_lock_release(folder->lock);
    mem_free(&folder->ctx->mem, folder->path);
    mem_free(&folder->ctx->mem, folder);
}
