#include "io/lock.h"

#include "io/io_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { PID_TEXT_MAX = 32 };

struct lock {
    struct der_ctx *ctx;
    int fd;
};

/* Who wrote the lock file, or 0 when it does not say: the holder may be about to. */
static long read_holder(int fd)
{
    char text[PID_TEXT_MAX];
    ssize_t n = io_read_at(io_calls_plain(), fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    char *end;
    long pid = strtol(text, &end, 10);
    return pid > 0 && *end == '\n' ? pid : 0;
}

static enum der_status refuse(struct der_ctx *ctx, const char *subject, int fd)
{
    long pid = read_holder(fd);
    if (pid == 0)
        return ctx_fail(ctx, DER_STATE, "%s is in use by another process", subject);
    return ctx_fail(ctx, DER_STATE, "%s is in use by process %ld", subject, pid);
}

/* Who only looks whether the lock is held (lock_held.h) is in the way for a moment, no longer. */
static int lock_now(int fd)
{
    enum { TRIES = 5, PAUSE_NS = 1000000 };
    int result = -1;
    for (int i = 0; i < TRIES; i++) {
        do
            result = flock(fd, LOCK_EX | LOCK_NB);
        while (result != 0 && errno == EINTR);
        if (result == 0 || errno != EWOULDBLOCK)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        errno = EWOULDBLOCK;
    }
    return result;
}

/* Takes the lock on the open file and signs it. */
static enum der_status take(struct der_ctx *ctx, const char *subject, const char *path, int fd)
{
    const struct io_calls *io = io_calls_plain();
    char text[PID_TEXT_MAX];
    if (lock_now(fd) != 0)
        return errno == EWOULDBLOCK ? refuse(ctx, subject, fd)
                                    : io_fail(ctx, "cannot lock", path, errno);
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (io_ftruncate(io, fd, 0) != 0 || io_write_all(io, fd, text, (size_t)length) != 0)
        return io_fail(ctx, "cannot write", path, errno);
    return DER_OK;
}

static char *lock_path(struct der_ctx *ctx, const char *folder)
{
    static const char name[] = "/lock";
    size_t length = strlen(folder);
    char *path = mem_alloc(&ctx->mem, length + sizeof name, 1);
    if (path) {
        memcpy(path, folder, length);
        memcpy(path + length, name, sizeof name);
    }
    return path;
}

enum der_status lock_take(struct der_ctx *ctx, const char *path, const char *subject,
                          struct lock **out)
{
    *out = NULL;
    struct lock *lock = mem_zalloc(&ctx->mem, 1, sizeof *lock);
    if (!lock)
        return ctx_nomem(ctx);
    lock->ctx = ctx;
    lock->fd = io_open(io_calls_plain(), path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    enum der_status status = lock->fd < 0 ? io_fail(ctx, "cannot open", path, errno)
                                          : take(ctx, subject, path, lock->fd);
    if (status != DER_OK) {
        lock_release(lock);
        return status;
    }
    *out = lock;
    return DER_OK;
}

enum der_status lock_take_folder(struct der_ctx *ctx, const char *folder, struct lock **out)
{
    char *path = lock_path(ctx, folder);
    *out = NULL;
    if (!path)
        return ctx_nomem(ctx);
    enum der_status status = lock_take(ctx, path, folder, out);
    mem_free(&ctx->mem, path);
    return status;
}

void lock_release(struct lock *lock)
{
    if (!lock)
        return;
    /* The file is not removed: a process that has just opened it would lock a file without a name,
     * and a third one a new file. */
    if (lock->fd >= 0)
        (void)close(lock->fd);
    mem_free(&lock->ctx->mem, lock);
}
