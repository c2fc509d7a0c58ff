#include "io/appender.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { LINE_CAPACITY_START = 1024 };

struct appender {
    struct der_ctx *ctx;
    const struct io_calls *io;
    char *path;
    char *line;      /* the latest line with its newline */
    size_t capacity; /* of `line` */
    int64_t length;  /* bytes of all whole lines */
    int fd;
};

static enum der_status check_length(struct appender *appender, int64_t length)
{
    struct stat info;
    if (appender->io->fstat(appender->io->user, appender->fd, &info) != 0)
        return io_fail(appender->ctx, "cannot examine", appender->path, errno);
    if (!S_ISREG(info.st_mode))
        return ctx_fail(appender->ctx, DER_IO, "%s is not a regular file", appender->path);
    if (info.st_size < length)
        return ctx_fail(appender->ctx, DER_FORMAT, "%s has %jd bytes, fewer than the %jd expected",
                        appender->path, (intmax_t)info.st_size, (intmax_t)length);
    if (length == 0)
        return DER_OK;
    char last;
    ssize_t n = io_read_at(appender->io, appender->fd, &last, 1, (off_t)length - 1);
    if (n < 0)
        return io_fail(appender->ctx, "cannot read", appender->path, errno);
    if (n == 0 || last != '\n')
        return ctx_fail(appender->ctx, DER_FORMAT, "%s: no line ends at byte %jd", appender->path,
                        (intmax_t)length);
    return DER_OK;
}

/* The file may be new, so its name is made durable too. */
static enum der_status cut_and_sync(struct appender *appender, int64_t length)
{
    int folder;
    TRY(io_open_folder_of(appender->ctx, appender->io, appender->path, &folder));
    int result = io_ftruncate(appender->io, appender->fd, (off_t)length);
    if (result == 0)
        result = io_fsync(appender->io, appender->fd);
    if (result == 0)
        result = io_fsync_folder(appender->io, folder);
    int error = errno;
    (void)io_close(appender->io, folder);
    if (result != 0)
        return io_fail(appender->ctx, "cannot write", appender->path, error);
    appender->length = length;
    return DER_OK;
}

static enum der_status open_file(struct appender *appender, int64_t length)
{
    /* Not blocking: a named pipe that nobody reads would hold us for ever. */
    int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | (length == 0 ? O_CREAT : 0);
    appender->fd = io_open(appender->io, appender->path, flags, 0666);
    if (appender->fd < 0)
        return io_fail(appender->ctx, "cannot open", appender->path, errno);
    TRY(check_length(appender, length));
    return cut_and_sync(appender, length);
}

enum der_status appender_open(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                              int64_t length, struct appender **out)
{
    *out = NULL;
    if (length < 0)
        return ctx_fail(ctx, DER_ARG, "%s cannot have %jd bytes", path, (intmax_t)length);
    struct appender *appender = mem_zalloc(&ctx->mem, 1, sizeof *appender);
    if (!appender)
        return ctx_nomem(ctx);
    appender->ctx = ctx;
    appender->io = io ? io : io_calls_plain();
    appender->fd = -1;
    enum der_status status = DER_OK;
    appender->path = mem_strdup(&ctx->mem, path);
    if (!appender->path)
        status = ctx_nomem(ctx);
    if (status == DER_OK)
        status = open_file(appender, length);
    if (status != DER_OK) {
        appender_close(appender);
        return status;
    }
    *out = appender;
    return DER_OK;
}

static bool reserve(struct appender *appender, size_t size)
{
    if (size <= appender->capacity)
        return true;
    size_t capacity = LINE_CAPACITY_START;
    while (capacity < size)
        if (!size_mul(capacity, 2, &capacity))
            return false;
    char *line = mem_realloc(&appender->ctx->mem, appender->line, capacity, 1);
    if (!line)
        return false;
    appender->line = line;
    appender->capacity = capacity;
    return true;
}

enum der_status appender_line(struct appender *appender, const char *line)
{
    assert(!strchr(line, '\n'));
    size_t size = strlen(line) + 1;
    if (!reserve(appender, size))
        return ctx_nomem(appender->ctx);
    memcpy(appender->line, line, size - 1);
    appender->line[size - 1] = '\n';
    return appender_bytes(appender, appender->line, size);
}

enum der_status appender_bytes(struct appender *appender, const void *data, size_t size)
{
    if (io_write_all(appender->io, appender->fd, data, size) != 0) {
        int error = errno;
        /* Half of it would be worse than nothing. If even that fails, the length in the state, which
         * does not count it, has the rest cut off. */
        (void)io_ftruncate(appender->io, appender->fd, (off_t)appender->length);
        return io_fail(appender->ctx, "cannot write", appender->path, error);
    }
    appender->length += (int64_t)size;
    return DER_OK;
}

enum der_status appender_sync(struct appender *appender)
{
    if (io_fsync(appender->io, appender->fd) != 0)
        return io_fail(appender->ctx, "cannot write", appender->path, errno);
    return DER_OK;
}

int64_t appender_length(const struct appender *appender)
{
    return appender->length;
}

void appender_close(struct appender *appender)
{
    if (!appender)
        return;
    struct mem *mem = &appender->ctx->mem;
    if (appender->fd >= 0)
        (void)io_close(appender->io, appender->fd);
    mem_free(mem, appender->line);
    mem_free(mem, appender->path);
    mem_free(mem, appender);
}
