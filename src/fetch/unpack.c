#include "fetch/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, SHOWN_MAX = 100, TARGET_PATH_MAX = 4096 };

struct unpacking {
    struct der_ctx *ctx;
    const struct io_calls *io;
    const struct unpack_request *request;
    struct archive *archive;
    int64_t packed; /* bytes of the archive */
    int64_t bytes;  /* unpacked so far */
    int files;
};

enum unpack_entry unpack_classify(const char *path, const char *folder, const char **name)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    if (path[0] == '\0' || strcmp(path, ".") == 0)
        return UNPACK_FOLDER;
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0)
        return UNPACK_REFUSED;
    const char *rest = path + length;
    if (rest[0] == '\0' || strcmp(rest, "/") == 0)
        return UNPACK_FOLDER;
    if (rest[0] != '/')
        return UNPACK_REFUSED;
    rest++;
    if (strcmp(rest, ".") == 0 || strcmp(rest, "..") == 0 || strlen(rest) > NAME_MAX)
        return UNPACK_REFUSED;
    for (const char *at = rest; *at; at++)
        if (*at == '/' || (unsigned char)*at < ' ' || *at == 0x7F)
            return UNPACK_REFUSED;
    *name = rest;
    return UNPACK_FILE;
}

static enum der_status fail_archive(struct unpacking *u)
{
    const char *what = archive_error_string(u->archive);
    if (archive_errno(u->archive) == ENOMEM)
        return ctx_nomem(u->ctx);
    return ctx_fail(u->ctx, DER_FORMAT, "%s cannot be unpacked: %s", u->request->archive,
                    what ? what : "it is damaged");
}

/* Names come from strangers: control characters are not shown. */
static enum der_status refuse(struct unpacking *u, const char *path, const char *why)
{
    char shown[SHOWN_MAX + 1];
    (void)snprintf(shown, sizeof shown, "%.*s", SHOWN_MAX, path);
    for (char *at = shown; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            *at = '?';
    return ctx_fail(u->ctx, DER_FORMAT, "%s holds '%s'%s; want files in %s/ and nothing else",
                    u->request->archive, shown, why, u->request->folder);
}

/* Counts bytes before they are written. */
static enum der_status admit(struct unpacking *u, size_t size)
{
    const struct unpack_limits *limits = &u->request->limits;
    if ((int64_t)size > limits->bytes - u->bytes)
        return ctx_fail(u->ctx, DER_FORMAT, "%s unpacks to more than %" PRId64 " bytes",
                        u->request->archive, limits->bytes);
    u->bytes += (int64_t)size;
    if (u->bytes > UNPACK_FREE_BYTES && u->bytes / limits->ratio > u->packed)
        return ctx_fail(u->ctx, DER_FORMAT,
                        "%s has %" PRId64 " bytes and unpacks to more than %d times as many",
                        u->request->archive, u->packed, limits->ratio);
    return DER_OK;
}

static enum der_status tick(struct unpacking *u)
{
    struct fetch_progress progress = {.stage = FETCH_UNPACKING,
                                      .file = u->request->folder,
                                      .done = archive_filter_bytes(u->archive, -1),
                                      .total = u->packed};
    if (watch_tick(u->request->watch, &progress))
        return ctx_fail(u->ctx, DER_CANCELLED,
                        "stopped while unpacking %s; the same command goes on",
                        u->request->archive);
    return DER_OK;
}

static enum der_status copy_data(struct unpacking *u, int fd, const char *path)
{
    int64_t at = 0;
    for (;;) {
        const void *data;
        size_t size;
        la_int64_t offset;
        int result = archive_read_data_block(u->archive, &data, &size, &offset);
        if (result == ARCHIVE_EOF)
            return DER_OK;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            return fail_archive(u);
        if (offset != at)
            return refuse(u, path, ", a file with holes");
        TRY(admit(u, size));
        if (io_write_all(u->io, fd, data, size) != 0)
            return io_fail(u->ctx, "cannot write", path, errno);
        at += (int64_t)size;
        TRY(tick(u));
    }
}

static enum der_status write_file(struct unpacking *u, const char *name)
{
    char path[TARGET_PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", u->request->target, name);
    if (length < 0 || length >= TARGET_PATH_MAX)
        return refuse(u, name, ", a name that is too long");
    /* Exclusive: nothing that lies there is followed or written over. */
    int fd = io_open(u->io, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST ? refuse(u, name, " twice")
                               : io_fail(u->ctx, "cannot write", path, errno);
    enum der_status status = copy_data(u, fd, path);
    if (status == DER_OK && io_fsync(u->io, fd) != 0)
        status = io_fail(u->ctx, "cannot write", path, errno);
    if (io_close(u->io, fd) != 0 && status == DER_OK)
        status = io_fail(u->ctx, "cannot write", path, errno);
    return status;
}

static enum der_status take_entry(struct unpacking *u, struct archive_entry *entry)
{
    const char *path = archive_entry_pathname(entry);
    if (!path)
        return refuse(u, "?", ", a name that cannot be read");
    if (archive_entry_hardlink(entry) || archive_entry_symlink(entry) ||
        archive_entry_filetype(entry) == AE_IFLNK)
        return refuse(u, path, ", a link");
    const char *name = NULL;
    enum unpack_entry meaning = unpack_classify(path, u->request->folder, &name);
    bool is_folder = archive_entry_filetype(entry) == AE_IFDIR;
    if (meaning == UNPACK_FOLDER && is_folder)
        return DER_OK;
    if (meaning != UNPACK_FILE || archive_entry_filetype(entry) != AE_IFREG)
        return refuse(u, path, is_folder ? ", a folder" : "");
    if (++u->files > u->request->limits.files)
        return ctx_fail(u->ctx, DER_FORMAT, "%s holds more than %d files", u->request->archive,
                        u->request->limits.files);
    return write_file(u, name);
}

static enum der_status open_archive(struct unpacking *u)
{
    struct stat info;
    if (stat(u->request->archive, &info) != 0)
        return io_fail(u->ctx, "cannot open", u->request->archive, errno);
    u->packed = (int64_t)info.st_size;
    if (archive_read_support_filter_gzip(u->archive) != ARCHIVE_OK ||
        archive_read_support_format_tar(u->archive) != ARCHIVE_OK ||
        archive_read_open_filename(u->archive, u->request->archive, BLOCK) != ARCHIVE_OK)
        return fail_archive(u);
    return DER_OK;
}

static enum der_status unpack_all(struct unpacking *u)
{
    TRY(open_archive(u));
    for (;;) {
        struct archive_entry *entry;
        int result = archive_read_next_header(u->archive, &entry);
        if (result == ARCHIVE_EOF)
            break;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            return fail_archive(u);
        TRY(take_entry(u, entry));
        TRY(tick(u));
    }
    if (u->files == 0)
        return ctx_fail(u->ctx, DER_FORMAT, "%s holds no files", u->request->archive);
    return DER_OK;
}

enum der_status unpack_run(struct der_ctx *ctx, const struct io_calls *io,
                           const struct unpack_request *request)
{
    struct unpacking u = {.ctx = ctx,
                          .io = io ? io : io_calls_plain(),
                          .request = request,
                          .archive = archive_read_new()};
    if (!u.archive)
        return ctx_nomem(ctx);
    enum der_status status = unpack_all(&u);
    (void)archive_read_free(u.archive);
    return status;
}
