#include "io/lock_held.h"

#include "io/io_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum der_status lock_is_held(struct der_ctx *ctx, const char *folder, bool *held)
{
    static const char name[] = "/lock";
    size_t room = strlen(folder) + sizeof name;
    char *path = mem_alloc(&ctx->mem, room, 1);
    *held = false;
    if (!path)
        return ctx_nomem(ctx);
    (void)snprintf(path, room, "%s%s", folder, name);
    int fd = io_open(io_calls_plain(), path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    mem_free(&ctx->mem, path);
    if (fd < 0)
        return DER_OK;
    *held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd); /* which ends the lock */
    return DER_OK;
}
