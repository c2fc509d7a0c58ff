#include "fetch/fetch.h"

#include "core/arena.h"
#include "fetch/checksum.h"
#include "fetch/transfer.h"
#include "fetch/unpack.h"
#include "io/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    ARCHIVE_FILES_MAX = 64,  /* the archives on offer have eight at most */
    ARCHIVE_RATIO_MAX = 100, /* images hardly pack: those on offer have 1.1 */
    MEGABYTE = 1000000,
};

static const int64_t ARCHIVE_BYTES_MAX = (int64_t)1
                                         << 30; /* unpacked; those on offer have 184 MB */
static const int64_t DOWNLOAD_BYTES_MAX = (int64_t)1 << 30; /* where the size is not known */

struct job {
    struct der_ctx *ctx;
    const struct io_calls *io;
    const struct offer *offer;
    const char *folder;
    const struct fetch_options *options;
    struct arena arena; /* paths and addresses */
};

/* One file on its way. */
struct piece {
    struct job *job;
    const char *name;
    const char *url;
    const char *part; /* path while it is incomplete */
    int64_t size;     /* 0: not known */
    struct checksum wanted;
    int fd; /* of `part` */
};

/* ---- addresses and paths --------------------------------------------------------------------- */

static enum der_status make_path(struct job *job, const char *before, const char *name,
                                 const char *after, const char **out)
{
    *out = arena_printf(&job->arena, "%s/%s%s%s", job->folder, before, name, after);
    return *out ? DER_OK : ctx_nomem(job->ctx);
}

static enum der_status make_url(struct job *job, const char *name, const char **out)
{
    const char *url = job->options->url ? job->options->url : job->offer->address;
    size_t length = strlen(url);
    bool is_folder = length > 0 && url[length - 1] == '/';
    if (!is_folder && job->offer->n_files == 1)
        *out = arena_strdup(&job->arena, url);
    else
        *out = arena_printf(&job->arena, "%s%s%s", url, is_folder ? "" : "/", name);
    return *out ? DER_OK : ctx_nomem(job->ctx);
}

static enum der_status describe(struct job *job, const struct offer_file *file, struct piece *out)
{
    *out = (struct piece){.job = job, .name = file->name, .size = file->size, .fd = -1};
    TRY(make_url(job, file->name, &out->url));
    TRY(make_path(job, "", file->name, ".part", &out->part));
    const char *sum = job->options->checksum;
    if (sum)
        out->size = 0;
    else
        sum = arena_printf(&job->arena, "sha256:%s", file->sha256);
    if (!sum)
        return ctx_nomem(job->ctx);
    return checksum_parse(job->ctx, sum, &out->wanted);
}

/* ---- the part on the disk -------------------------------------------------------------------- */

static enum der_status open_part(struct piece *p)
{
    struct job *job = p->job;
    p->fd = io_open(job->io, p->part, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (p->fd < 0)
        return io_fail(job->ctx, "cannot write", p->part, errno);
    if (flock(p->fd, LOCK_EX | LOCK_NB) == 0)
        return DER_OK;
    if (errno == EWOULDBLOCK)
        return ctx_fail(job->ctx, DER_STATE, "%s is being downloaded by another process", p->part);
    return io_fail(job->ctx, "cannot lock", p->part, errno);
}

static enum der_status part_size(struct piece *p, int64_t *out)
{
    struct stat info;
    if (p->job->io->fstat(p->job->io->user, p->fd, &info) != 0)
        return io_fail(p->job->ctx, "cannot examine", p->part, errno);
    if (!S_ISREG(info.st_mode))
        return ctx_fail(p->job->ctx, DER_IO, "%s is not a regular file; remove it", p->part);
    *out = (int64_t)info.st_size;
    return DER_OK;
}

static enum der_status empty_part(struct piece *p)
{
    if (io_ftruncate(p->job->io, p->fd, 0) != 0)
        return io_fail(p->job->ctx, "cannot cut", p->part, errno);
    return DER_OK;
}

/* Reading a file for its checksum, watched. */
struct checking {
    const struct piece *piece;
    int64_t size;
};

static bool check_tick(void *user, int64_t done)
{
    const struct checking *c = user;
    struct fetch_progress progress = {
        .stage = FETCH_CHECKING, .file = c->piece->name, .done = done, .total = c->size};
    return watch_tick(&c->piece->job->options->watch, &progress);
}

static enum der_status check_sum(struct piece *p, int fd, const char *path, struct checksum *sum)
{
    struct checking c = {p, p->size};
    return checksum_of_file(p->job->ctx, p->job->io, fd, path, p->wanted.kind, check_tick, &c, sum);
}

static enum der_status check_space(const struct piece *p, int64_t have)
{
    const struct job *job = p->job;
    struct statvfs info;
    if (p->size == 0 || statvfs(job->folder, &info) != 0)
        return DER_OK; /* writing will tell */
    int64_t wanted = p->size - have + (job->offer->folder ? job->offer->unpacked : 0);
    uint64_t free_blocks = (uint64_t)wanted / (info.f_frsize > 0 ? info.f_frsize : 1);
    if (free_blocks < info.f_bavail)
        return DER_OK;
    return ctx_fail(job->ctx, DER_IO,
                    "%s needs %" PRId64 " MB more, but only %" PRIu64 " MB are free", job->folder,
                    wanted / MEGABYTE,
                    (uint64_t)info.f_bavail * (uint64_t)info.f_frsize / MEGABYTE);
}

static enum der_status fail_checksum(struct piece *p, const struct checksum *sum)
{
    char is[CHECKSUM_TEXT_MAX];
    char wanted[CHECKSUM_TEXT_MAX];
    checksum_text(sum, is);
    checksum_text(&p->wanted, wanted);
    return ctx_fail(p->job->ctx, DER_FORMAT, "%s is not the wanted file: its %s is %s, want %s",
                    p->url, checksum_name(sum->kind), is, wanted);
}

/* ---- one file -------------------------------------------------------------------------------- */

static enum der_status transfer(struct piece *p, int *connections)
{
    const struct fetch_options *options = p->job->options;
    struct transfer_request request = {
        .url = p->url,
        .path = p->part,
        .name = p->name,
        .size = p->size,
        .size_max = p->size > 0 ? p->size : DOWNLOAD_BYTES_MAX,
        .stall_seconds = options->stall_seconds,
        .retries = options->retries,
        .pause_seconds = options->pause_seconds,
        .watch = &options->watch,
    };
    return transfer_run(p->job->ctx, p->job->io, p->fd, &request, connections);
}

/* Is the part whole and right as it is? One that is wrong, and not just incomplete, is emptied. */
static enum der_status try_part(struct piece *p, int64_t *have, bool *is_right)
{
    *is_right = false;
    TRY(part_size(p, have));
    if (*have == 0 || *have < p->size)
        return DER_OK;
    if (p->size == 0 || *have == p->size) {
        struct checksum sum;
        TRY(check_sum(p, p->fd, p->part, &sum));
        *is_right = checksum_equal(&sum, &p->wanted);
    }
    if (*is_right || p->size == 0)
        return DER_OK;
    *have = 0;
    return empty_part(p);
}

/* Makes the open part whole. What was pieced together and turns out wrong is downloaded once more, in one go; what
 * came in one go and is wrong is another file. */
static enum der_status complete_part(struct piece *p)
{
    for (int round = 0;; round++) {
        int64_t had;
        bool is_right;
        TRY(try_part(p, &had, &is_right));
        if (is_right)
            return DER_OK;
        TRY(check_space(p, had));
        int connections = 0;
        TRY(transfer(p, &connections));
        struct checksum sum;
        TRY(check_sum(p, p->fd, p->part, &sum));
        if (checksum_equal(&sum, &p->wanted))
            return DER_OK;
        TRY(empty_part(p));
        if (round > 0 || (had == 0 && connections == 1))
            return fail_checksum(p, &sum);
    }
}

/* Downloads to the part, brings it to the disk and closes it. */
static enum der_status get_part(struct piece *p)
{
    struct job *job = p->job;
    enum der_status status = open_part(p);
    if (status == DER_OK)
        status = complete_part(p);
    if (status == DER_OK && io_fsync(job->io, p->fd) != 0)
        status = io_fail(job->ctx, "cannot write", p->part, errno);
    int64_t size = 0;
    if (status == DER_FORMAT && part_size(p, &size) == DER_OK && size == 0)
        (void)job->io->unlink(job->io->user, p->part); /* nothing of use is left */
    if (p->fd >= 0 && io_close(job->io, p->fd) != 0 && status == DER_OK)
        status = io_fail(job->ctx, "cannot write", p->part, errno);
    return status;
}

/* Gives something its name, for good. */
static enum der_status put_in_place(struct job *job, const char *from, const char *to)
{
    if (job->io->rename(job->io->user, from, to) != 0)
        return io_fail(job->ctx, "cannot make", to, errno);
    int folder;
    TRY(io_open_folder_of(job->ctx, job->io, to, &folder));
    enum der_status status = DER_OK;
    if (io_fsync_folder(job->io, folder) != 0)
        status = io_fail(job->ctx, "cannot sync the folder of", to, errno);
    (void)io_close(job->io, folder);
    return status;
}

/* Is the file there already? One that is there and wrong is the user's to move. */
static enum der_status find_file(struct piece *p, const char *path, bool *is_there)
{
    struct job *job = p->job;
    *is_there = false;
    int fd = io_open(job->io, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0)
        return errno == ENOENT ? DER_OK : io_fail(job->ctx, "cannot open", path, errno);
    struct checksum sum;
    enum der_status status = check_sum(p, fd, path, &sum);
    (void)io_close(job->io, fd);
    TRY(status);
    *is_there = checksum_equal(&sum, &p->wanted);
    if (*is_there)
        return DER_OK;
    return ctx_fail(job->ctx, DER_STATE, "%s is there, but is not the published file; move it away",
                    path);
}

static enum der_status fetch_file(struct job *job, const struct offer_file *file)
{
    struct piece p;
    const char *path;
    bool is_there;
    TRY(describe(job, file, &p));
    TRY(make_path(job, "", file->name, "", &path));
    TRY(find_file(&p, path, &is_there));
    if (is_there)
        return DER_OK;
    TRY(get_part(&p));
    return put_in_place(job, p.part, path);
}

/* ---- an archive ------------------------------------------------------------------------------ */

/* Removes a folder of files; one that is not there will do. Nothing in it is followed. */
static enum der_status discard_folder(struct job *job, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? DER_OK : io_fail(job->ctx, "cannot remove", path, errno);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        enum der_status status = io_fail(job->ctx, "cannot remove", path, errno);
        (void)close(fd);
        return status;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(fd, entry->d_name, 0); /* what stays makes rmdir fail */
    (void)closedir(dir);
    return rmdir(path) == 0 ? DER_OK : io_fail(job->ctx, "cannot remove", path, errno);
}

/* The place of the unpacked folder must be free; an empty one will do. */
static enum der_status check_place(struct job *job, const char *path)
{
    if (rmdir(path) == 0 || errno == ENOENT)
        return DER_OK;
    return ctx_fail(job->ctx, DER_STATE, "%s is there, but is not the whole data set; move it away",
                    path);
}

static enum der_status unpack(struct job *job, const struct piece *p, const char *target)
{
    struct unpack_request request = {
        .archive = p->part,
        .folder = job->offer->folder,
        .target = target,
        .limits = {ARCHIVE_BYTES_MAX, ARCHIVE_FILES_MAX, ARCHIVE_RATIO_MAX},
        .watch = &job->options->watch,
    };
    TRY(discard_folder(job, target)); /* of a process that was killed */
    TRY(durable_mkdir(job->ctx, job->io, target));
    return unpack_run(job->ctx, job->io, &request);
}

/* After a failure the archive stays, whole, unless it is itself what is wrong. */
static enum der_status clean_up(struct job *job, const struct piece *p, const char *target,
                                enum der_status status)
{
    char sentence[CTX_ERROR_MAX];
    memcpy(sentence, job->ctx->error, sizeof sentence);
    if (discard_folder(job, target) != DER_OK)
        ctx_log(job->ctx, DER_LOG_WARNING, "%s", job->ctx->error);
    if (status == DER_FORMAT)
        (void)job->io->unlink(job->io->user, p->part);
    return ctx_fail(job->ctx, status, "%s", sentence);
}

static enum der_status fetch_archive(struct job *job)
{
    struct piece p;
    const char *place;
    const char *target;
    TRY(describe(job, &job->offer->files[0], &p));
    TRY(make_path(job, "", job->offer->folder, "", &place));
    TRY(make_path(job, ".", job->offer->folder, ".unpacking", &target));
    TRY(check_place(job, place));
    TRY(get_part(&p));
    enum der_status status = unpack(job, &p, target);
    if (status == DER_OK && job->options->content)
        status = job->options->content(job->options->content_user, target, p.url);
    if (status == DER_OK)
        status = put_in_place(job, target, place);
    if (status != DER_OK)
        return clean_up(job, &p, target, status);
    if (job->io->unlink(job->io->user, p.part) != 0)
        ctx_log(job->ctx, DER_LOG_WARNING, "%s could not be removed", p.part);
    return DER_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum der_status fetch_all(struct job *job)
{
    if (job->options->checksum && job->offer->n_files > 1)
        return ctx_fail(job->ctx, DER_ARG,
                        "%s has %d files; a checksum of one's own is for one file",
                        job->offer->name, job->offer->n_files);
    TRY(durable_mkdir(job->ctx, job->io, job->folder));
    if (job->offer->folder)
        return fetch_archive(job);
    for (int i = 0; i < job->offer->n_files; i++)
        TRY(fetch_file(job, &job->offer->files[i]));
    return DER_OK;
}

enum der_status fetch_run(struct der_ctx *ctx, const struct offer *offer, const char *folder,
                          const struct fetch_options *options)
{
    struct job job = {.ctx = ctx,
                      .io = options->io ? options->io : io_calls_plain(),
                      .offer = offer,
                      .folder = folder,
                      .options = options};
    arena_init(&job.arena, &ctx->mem);
    enum der_status status = fetch_all(&job);
    arena_fini(&job.arena);
    return status;
}
