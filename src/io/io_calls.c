#include "io/io_calls.h"

#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { IO_PIECE_MAX = 1 << 30 }; /* Linux moves no more than 2 GiB - 4 KiB in one call */

static int plain_open(void *user, const char *path, int flags, mode_t mode)
{
    (void)user;
    return open(path, flags, mode);
}

static int plain_fstat(void *user, int fd, struct stat *info)
{
    (void)user;
    return fstat(fd, info);
}

static ssize_t plain_pread(void *user, int fd, void *dst, size_t n, off_t offset)
{
    (void)user;
    return pread(fd, dst, n, offset);
}

static ssize_t plain_write(void *user, int fd, const void *src, size_t n)
{
    (void)user;
    return write(fd, src, n);
}

static int plain_fsync(void *user, int fd)
{
    (void)user;
    return fsync(fd);
}

static int plain_ftruncate(void *user, int fd, off_t size)
{
    (void)user;
    return ftruncate(fd, size);
}

static int plain_mkdir(void *user, const char *path, mode_t mode)
{
    (void)user;
    return mkdir(path, mode);
}

static int plain_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to);
}

static int plain_unlink(void *user, const char *path)
{
    (void)user;
    return unlink(path);
}

static int plain_close(void *user, int fd)
{
    (void)user;
    return close(fd);
}

const struct io_calls *io_calls_plain(void)
{
    static const struct io_calls plain = {
        .open = plain_open,
        .fstat = plain_fstat,
        .pread = plain_pread,
        .write = plain_write,
        .fsync = plain_fsync,
        .ftruncate = plain_ftruncate,
        .mkdir = plain_mkdir,
        .rename = plain_rename,
        .unlink = plain_unlink,
        .close = plain_close,
    };
    return &plain;
}

enum der_status io_fail(struct der_ctx *ctx, const char *what, const char *path, int error)
{
    struct fault fault;
    enum der_status status = fault_errno(&fault, what, path, error);
    return ctx_fail(ctx, status, "%s", fault.text);
}

int io_open(const struct io_calls *io, const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = io->open(io->user, path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int io_fsync(const struct io_calls *io, int fd)
{
    int result;
    do
        result = io->fsync(io->user, fd);
    while (result != 0 && errno == EINTR);
    return result;
}

int io_ftruncate(const struct io_calls *io, int fd, off_t size)
{
    int result;
    do
        result = io->ftruncate(io->user, fd, size);
    while (result != 0 && errno == EINTR);
    return result;
}

int io_close(const struct io_calls *io, int fd)
{
    if (io->close(io->user, fd) == 0 || errno == EINTR)
        return 0;
    return -1;
}

int io_write_all(const struct io_calls *io, int fd, const void *src, size_t size)
{
    const char *at = src;
    while (size > 0) {
        ssize_t n = io->write(io->user, fd, at, size < IO_PIECE_MAX ? size : IO_PIECE_MAX);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO; /* no progress and no reason: trying again might never end */
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

ssize_t io_read_at(const struct io_calls *io, int fd, void *dst, size_t size, off_t offset)
{
    size_t got = 0;
    while (got < size) {
        size_t piece = size - got < IO_PIECE_MAX ? size - got : IO_PIECE_MAX;
        ssize_t n = io->pread(io->user, fd, (char *)dst + got, piece, offset + (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int io_fsync_folder(const struct io_calls *io, int fd)
{
    if (io_fsync(io, fd) == 0 || errno == EINVAL || errno == ENOTSUP)
        return 0;
    return -1;
}

enum der_status io_open_folder_of(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                  int *fd)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    const char *slash = strrchr(path, '/');
    *fd = -1;
    if (!slash) {
        *fd = io_open(io, ".", flags, 0);
        return *fd < 0 ? io_fail(ctx, "cannot open the folder of", path, errno) : DER_OK;
    }
    /* "/name" lies in "/": the slash belongs to the folder. */
    size_t length = (size_t)(slash - path) + 1;
    char *folder = mem_alloc(&ctx->mem, length + 1, 1);
    if (!folder)
        return ctx_nomem(ctx);
    memcpy(folder, path, length);
    folder[length] = '\0';
    *fd = io_open(io, folder, flags, 0);
    int error = errno;
    mem_free(&ctx->mem, folder);
    return *fd < 0 ? io_fail(ctx, "cannot open the folder of", path, error) : DER_OK;
}
