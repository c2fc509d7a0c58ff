#define _XOPEN_SOURCE 700 /* realpath */

#include "io/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAMES_TRIED = 1000, /* until a temporary name is free */
    SUFFIX_MAX = 64,    /* of a temporary name: ".PID-NUMBER.tmp" */
    NAME_KEPT = 180,    /* bytes of a name in its temporary one: file systems allow 255 in all */
};

#define TEMPORARY_END ".tmp"

struct durable {
    struct der_ctx *ctx;
    const struct io_calls *io;
    char *path;      /* where the file will be */
    char *temporary; /* where it is written; NULL: in its place, which has no content to lose */
    int fd;          /* of the temporary file; -1: there is none */
    int folder;      /* of the folder of both; -1: there is no temporary file */
    bool has_failed; /* a write did: the content is not whole */
};

static void give_back(struct durable *file)
{
    struct mem *mem = &file->ctx->mem;
    if (file->fd >= 0)
        (void)io_close(file->io, file->fd);
    if (file->folder >= 0)
        (void)io_close(file->io, file->folder);
    mem_free(mem, file->path);
    mem_free(mem, file->temporary);
    mem_free(mem, file);
}

/* Opens FOLDER/.NAME.PID-NUMBER.tmp with the first number that is free: two threads, or two machines
 * on one network file system, never share one. */
static enum der_status open_temporary(struct durable *file)
{
    const char *slash = strrchr(file->path, '/');
    const char *name = slash ? slash + 1 : file->path;
    size_t capacity = strlen(file->path) + SUFFIX_MAX;
    TRY(io_open_folder_of(file->ctx, file->io, file->path, &file->folder));
    file->temporary = mem_alloc(&file->ctx->mem, capacity, 1);
    if (!file->temporary)
        return ctx_nomem(file->ctx);
    for (int i = 0; i < NAMES_TRIED && file->fd < 0; i++) {
        (void)snprintf(file->temporary, capacity, "%.*s.%.*s.%ld-%d" TEMPORARY_END,
                       (int)(name - file->path), file->path, NAME_KEPT, name, (long)getpid(), i);
        file->fd =
            io_open(file->io, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno != EEXIST)
            break;
    }
    return file->fd < 0 ? io_fail(file->ctx, "cannot write", file->path, errno) : DER_OK;
}

enum der_status durable_place(struct der_ctx *ctx, const char *path, char **out)
{
    *out = NULL;
    struct stat info;
    char real[PATH_MAX];
    bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    if (is_link && !realpath(path, real))
        return io_fail(ctx, "cannot follow the link", path, errno);
    *out = mem_strdup(&ctx->mem, is_link ? real : path);
    return *out ? DER_OK : ctx_nomem(ctx);
}

/* What is there and is not a file. Opening a disk or a socket would destroy more than a file. */
static enum der_status open_special(struct durable *file, const char *path, mode_t mode)
{
    if (!S_ISFIFO(mode) && !S_ISCHR(mode))
        return io_fail(file->ctx, "cannot write", path, S_ISDIR(mode) ? EISDIR : EINVAL);
    file->path = mem_strdup(&file->ctx->mem, path);
    if (!file->path)
        return ctx_nomem(file->ctx);
    /* A pipe that nobody reads is an error; only writing waits for a reader. */
    file->fd = io_open(file->io, path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (file->fd < 0 || fcntl(file->fd, F_SETFL, O_WRONLY) != 0)
        return io_fail(file->ctx, "cannot write", path, errno);
    return DER_OK;
}

static enum der_status open_place(struct durable *file, const char *path)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return open_special(file, path, info.st_mode);
    TRY(durable_place(file->ctx, path, &file->path));
    return open_temporary(file);
}

enum der_status durable_open(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                             struct durable **out)
{
    *out = NULL;
    size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/')
        return ctx_fail(ctx, DER_ARG, "'%s' is not the name of a file", path);
    struct durable *file = mem_zalloc(&ctx->mem, 1, sizeof *file);
    if (!file)
        return ctx_nomem(ctx);
    file->ctx = ctx;
    file->io = io ? io : io_calls_plain();
    file->fd = -1;
    file->folder = -1;
    enum der_status status = open_place(file, path);
    if (status != DER_OK) {
        give_back(file);
        return status;
    }
    *out = file;
    return DER_OK;
}

enum der_status durable_write(struct durable *file, const void *data, size_t size)
{
    if (io_write_all(file->io, file->fd, data, size) == 0)
        return DER_OK;
    file->has_failed = true;
    return io_fail(file->ctx, "cannot write", file->path, errno);
}

/* Up to the moment where the new file is in its place. */
static enum der_status put_in_place(struct durable *file)
{
    if (file->has_failed)
        return ctx_fail(file->ctx, DER_STATE, "%s was not written whole and is not put in place",
                        file->path);
    if (file->temporary && io_fsync(file->io, file->fd) != 0)
        return io_fail(file->ctx, "cannot write", file->path, errno);
    int fd = file->fd;
    file->fd = -1;
    if (io_close(file->io, fd) != 0 ||
        (file->temporary && file->io->rename(file->io->user, file->temporary, file->path) != 0))
        return io_fail(file->ctx, "cannot write", file->path, errno);
    return DER_OK;
}

enum der_status durable_commit(struct durable *file)
{
    enum der_status status = put_in_place(file);
    if (status != DER_OK) {
        durable_abort(file);
        return status;
    }
    if (file->temporary && io_fsync_folder(file->io, file->folder) != 0)
        status = io_fail(file->ctx, "cannot sync the folder of", file->path, errno);
    give_back(file);
    return status;
}

void durable_abort(struct durable *file)
{
    if (!file)
        return;
    /* What cannot be removed now is swept later. */
    if (file->temporary)
        (void)file->io->unlink(file->io->user, file->temporary);
    give_back(file);
}

enum der_status durable_write_file(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                   const void *data, size_t size)
{
    struct durable *file;
    TRY(durable_open(ctx, io, path, &file));
    enum der_status status = durable_write(file, data, size);
    if (status != DER_OK) {
        durable_abort(file);
        return status;
    }
    return durable_commit(file);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum der_status make_folder(struct der_ctx *ctx, const struct io_calls *io, const char *path)
{
    int parent;
    if (is_folder(path))
        return DER_OK;
    TRY(io_open_folder_of(ctx, io, path, &parent));
    int result = io->mkdir(io->user, path, 0777);
    if (result == 0)
        result = io_fsync_folder(io, parent);
    int error = errno;
    (void)io_close(io, parent);
    /* Another process may have been faster. */
    if (result == 0 || (error == EEXIST && is_folder(path)))
        return DER_OK;
    return io_fail(ctx, "cannot make folder", path, error);
}

/* A folder and those that it lies in, as far as they are not there. */
static enum der_status make_folders(struct der_ctx *ctx, const struct io_calls *io, char *path)
{
    if (is_folder(path))
        return DER_OK; /* whatever it lies in */
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        enum der_status status = make_folder(ctx, io, path);
        *slash = '/';
        TRY(status);
    }
    return make_folder(ctx, io, path);
}

enum der_status durable_mkdir(struct der_ctx *ctx, const struct io_calls *io, const char *path)
{
    /* Slashes at the end would hide what the parent is. */
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    char *copy = mem_alloc(&ctx->mem, length + 1, 1);
    if (!copy)
        return ctx_nomem(ctx);
    memcpy(copy, path, length);
    copy[length] = '\0';
    enum der_status status = make_folders(ctx, io ? io : io_calls_plain(), copy);
    mem_free(&ctx->mem, copy);
    return status;
}

/* Goes backwards over digits; false when there is none. */
static bool skip_digits(const char *name, size_t *end)
{
    size_t before = *end;
    while (*end > 0 && name[*end - 1] >= '0' && name[*end - 1] <= '9')
        (*end)--;
    return *end < before;
}

static bool skip_char(const char *name, size_t *end, char wanted)
{
    if (*end == 0 || name[*end - 1] != wanted)
        return false;
    (*end)--;
    return true;
}

/* Is it ".NAME.PID-NUMBER.tmp", of this NAME or, when that is NULL, of any? */
static bool is_temporary(const char *name, const char *of)
{
    size_t length = strlen(name);
    size_t tail = strlen(TEMPORARY_END);
    if (name[0] != '.' || length < tail || strcmp(name + length - tail, TEMPORARY_END) != 0)
        return false;
    size_t end = length - tail;
    if (!skip_digits(name, &end) || !skip_char(name, &end, '-') || !skip_digits(name, &end) ||
        !skip_char(name, &end, '.'))
        return false;
    return of ? end == strnlen(of, NAME_KEPT) + 1 && strncmp(name + 1, of, end - 1) == 0 : end > 1;
}

static enum der_status sweep(struct der_ctx *ctx, const char *folder, DIR *dir, const char *of)
{
    for (;;) {
        errno = 0; /* the only way to tell the end from an error */
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno != 0 ? io_fail(ctx, "cannot list folder", folder, errno) : DER_OK;
        struct stat info;
        if (!is_temporary(entry->d_name, of) ||
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) != 0 && errno != ENOENT)
            return io_fail(ctx, "cannot remove left-over files from", folder, errno);
        ctx_log(ctx, DER_LOG_INFO, "%s: removed %s, left over by a process that was killed", folder,
                entry->d_name);
    }
}

static enum der_status sweep_folder(struct der_ctx *ctx, const char *folder, const char *of)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return io_fail(ctx, "cannot list folder", folder, errno);
    enum der_status status = sweep(ctx, folder, dir, of);
    (void)closedir(dir);
    return status;
}

enum der_status durable_sweep(struct der_ctx *ctx, const char *folder)
{
    return sweep_folder(ctx, folder, NULL);
}

enum der_status durable_sweep_file(struct der_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return sweep_folder(ctx, ".", path);
    char *folder = mem_strdup(&ctx->mem, path);
    if (!folder)
        return ctx_nomem(ctx);
    folder[slash - path + 1] = '\0'; /* with its slash, so that the root stays one */
    enum der_status status = sweep_folder(ctx, folder, slash + 1);
    mem_free(&ctx->mem, folder);
    return status;
}

enum der_status durable_sync_names(struct der_ctx *ctx, const struct io_calls *io, const char *path)
{
    int fd;
    io = io ? io : io_calls_plain();
    TRY(io_open_folder_of(ctx, io, path, &fd));
    int result = io_fsync_folder(io, fd);
    int error = errno;
    (void)io_close(io, fd);
    return result == 0 ? DER_OK : io_fail(ctx, "cannot sync the folder of", path, error);
}
