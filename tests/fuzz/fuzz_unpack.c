/*
 * Fuzz target: archives. Whatever they hold, files are made in the target folder and nowhere else, anew, and
 * within the limits. Nothing reaches the disk.
 */
#include "fetch/unpack.h"

#include "fuzz/fuzz_set.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { BYTES_MAX = 1 << 22, FILES_MAX = 8, ARCHIVE_PATH = 64 };

static const char TARGET[] = "target/";

/* What was written. */
struct sink {
    int64_t bytes;
    int files, open;
};

static int sink_open(void *user, const char *path, int flags, mode_t mode)
{
    struct sink *sink = user;
    (void)mode;
    require(strncmp(path, TARGET, sizeof TARGET - 1) == 0);
    const char *name = path + sizeof TARGET - 1;
    require(name[0] != '\0' && !strchr(name, '/') && strcmp(name, ".") != 0 &&
            strcmp(name, "..") != 0);
    require((flags & O_EXCL) && (flags & O_NOFOLLOW));
    sink->files++;
    sink->open++;
    require(sink->files <= FILES_MAX);
    return 0;
}

static ssize_t sink_write(void *user, int fd, const void *src, size_t n)
{
    struct sink *sink = user;
    (void)fd;
    (void)src;
    sink->bytes += (int64_t)n;
    require(sink->bytes <= BYTES_MAX);
    return (ssize_t)n;
}

static int sink_fsync(void *user, int fd)
{
    (void)user;
    (void)fd;
    return 0;
}

static int sink_close(void *user, int fd)
{
    struct sink *sink = user;
    (void)fd;
    sink->open--;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FILE *file = tmpfile();
    require(file && fwrite(data, 1, size, file) == size && fflush(file) == 0);
    char archive[ARCHIVE_PATH];
    (void)snprintf(archive, sizeof archive, "/proc/self/fd/%d", fileno(file));
    struct sink sink = {0};
    const struct io_calls io = {.open = sink_open,
                                .write = sink_write,
                                .fsync = sink_fsync,
                                .close = sink_close,
                                .user = &sink};
    const struct fetch_watch watch = {0};
    const struct unpack_request request = {
        .archive = archive,
        .folder = "set",
        .target = "target",
        .limits = {.bytes = BYTES_MAX, .files = FILES_MAX, .ratio = 100},
        .watch = &watch,
    };
    struct der_ctx *ctx = fuzz_ctx();
    if (unpack_run(ctx, &io, &request) != DER_OK)
        require(ctx->error[0] != '\0');
    else
        require(sink.files > 0);
    require(sink.open == 0);
    fuzz_ctx_free(ctx);
    (void)fclose(file);
    return 0;
}
