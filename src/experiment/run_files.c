#include "experiment/run_files.h"

#include "io/io_calls.h"
#include "io/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a name in a run folder is. */
enum file_kind {
    FILE_PASSING, /* the lock, "." and "..", and temporary files of io/durable */
    FILE_OF_RUN,
    FILE_FOREIGN
};

char *run_files_join(struct der_ctx *ctx, const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = mem_alloc(&ctx->mem, size, 1);
    if (path)
        (void)snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name);
    size_t tail = strlen(ending);
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

static enum file_kind kind_of(DIR *dir, const char *name)
{
    struct stat info;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return FILE_PASSING;
    if (fstatat(dirfd(dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return FILE_FOREIGN;
    if (strcmp(name, "lock") == 0 || (name[0] == '.' && ends_with(name, ".tmp")))
        return FILE_PASSING;
    if (strcmp(name, "config.json") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
        ends_with(name, ".safetensors"))
        return FILE_OF_RUN;
    return FILE_FOREIGN;
}

/* Told of every name that is not FILE_PASSING. */
typedef enum der_status visit_fn(struct der_ctx *ctx, const char *folder, DIR *dir,
                                 const char *name, void *user);

static enum der_status visit_all(struct der_ctx *ctx, const char *folder, DIR *dir, visit_fn *visit,
                                 void *user)
{
    for (;;) {
        errno = 0; /* the only way to tell the end from an error */
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno != 0 ? io_fail(ctx, "cannot list folder", folder, errno) : DER_OK;
        if (kind_of(dir, entry->d_name) != FILE_PASSING)
            TRY(visit(ctx, folder, dir, entry->d_name, user));
    }
}

static enum der_status visit_folder(struct der_ctx *ctx, const char *folder, visit_fn *visit,
                                    void *user)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return io_fail(ctx, "cannot list folder", folder, errno);
    enum der_status status = visit_all(ctx, folder, dir, visit, user);
    (void)closedir(dir);
    return status;
}

static enum der_status note_one(struct der_ctx *ctx, const char *folder, DIR *dir, const char *name,
                                void *user)
{
    (void)ctx;
    (void)folder;
    (void)dir;
    (void)name;
    *(bool *)user = false;
    return DER_OK;
}

enum der_status run_files_is_empty(struct der_ctx *ctx, const char *folder, bool *out)
{
    *out = true;
    return visit_folder(ctx, folder, note_one, out);
}

static enum der_status refuse_foreign(struct der_ctx *ctx, const char *folder, DIR *dir,
                                      const char *name, void *user)
{
    (void)user;
    if (kind_of(dir, name) == FILE_OF_RUN)
        return DER_OK;
    return ctx_fail(ctx, DER_STATE,
                    "%s is not started afresh: it also holds %.100s, which no run wrote", folder,
                    name);
}

/* Files of the kind asked for: config.json, or the others. */
static enum der_status remove_one(struct der_ctx *ctx, const char *folder, DIR *dir,
                                  const char *name, void *user)
{
    const bool *wants_config = user;
    if ((strcmp(name, "config.json") == 0) != *wants_config)
        return DER_OK;
    if (unlinkat(dirfd(dir), name, 0) == 0 || errno == ENOENT)
        return DER_OK;
    return io_fail(ctx, "cannot remove the files of", folder, errno);
}

enum der_status run_files_remove(struct der_ctx *ctx, const char *folder)
{
    struct folder_lock *lock;
    TRY(folder_lock_take(ctx, folder, &lock));
    enum der_status status = visit_folder(ctx, folder, refuse_foreign, NULL);
    /* config.json goes last: a kill in between leaves a run that has just begun. */
    for (int pass = 0; pass < 2 && status == DER_OK; pass++)
        status = visit_folder(ctx, folder, remove_one, &(bool){pass == 1});
    folder_lock_release(lock);
    return status;
}
