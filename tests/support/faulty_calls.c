#include "support/faulty_calls.h"

#include <errno.h>
#include <signal.h>

/* The name of a call is a pointer to one of these. */
static const char OPEN[] = "open";
static const char FSTAT[] = "fstat";
static const char PREAD[] = "pread";
static const char WRITE[] = "write";
static const char FSYNC[] = "fsync";
static const char FTRUNCATE[] = "ftruncate";
static const char MKDIR[] = "mkdir";
static const char RENAME[] = "rename";
static const char UNLINK[] = "unlink";
static const char CLOSE[] = "close";

static bool is_never_interrupted(const char *name)
{
    return name == FSTAT || name == MKDIR || name == RENAME || name == UNLINK;
}

/* Counts a call; true when it is to fail, with errno set. */
static bool goes_wrong(struct faulty_calls *calls, const char *name)
{
    calls->n_calls++;
    if (calls->n_calls == calls->fail_at) {
        if (calls->kills)
            (void)raise(SIGKILL);
        calls->failed_call = name;
        errno = calls->error;
        return true;
    }
    if (calls->is_full && name == WRITE && calls->failed_call == WRITE) {
        errno = calls->error;
        return true;
    }
    if (calls->interrupts && calls->n_calls % 2 == 0 && !is_never_interrupted(name)) {
        errno = EINTR;
        return true;
    }
    return false;
}

static size_t shortened(const struct faulty_calls *calls, size_t n)
{
    return calls->most > 0 && calls->most < n ? calls->most : n;
}

static int faulty_open(void *user, const char *path, int flags, mode_t mode)
{
    return goes_wrong(user, OPEN) ? -1 : io_calls_plain()->open(NULL, path, flags, mode);
}

static int faulty_fstat(void *user, int fd, struct stat *info)
{
    return goes_wrong(user, FSTAT) ? -1 : io_calls_plain()->fstat(NULL, fd, info);
}

static ssize_t faulty_pread(void *user, int fd, void *dst, size_t n, off_t offset)
{
    if (goes_wrong(user, PREAD))
        return -1;
    return io_calls_plain()->pread(NULL, fd, dst, shortened(user, n), offset);
}

static ssize_t faulty_write(void *user, int fd, const void *src, size_t n)
{
    if (goes_wrong(user, WRITE))
        return -1;
    return io_calls_plain()->write(NULL, fd, src, shortened(user, n));
}

static int faulty_fsync(void *user, int fd)
{
    return goes_wrong(user, FSYNC) ? -1 : io_calls_plain()->fsync(NULL, fd);
}

static int faulty_ftruncate(void *user, int fd, off_t size)
{
    return goes_wrong(user, FTRUNCATE) ? -1 : io_calls_plain()->ftruncate(NULL, fd, size);
}

static int faulty_mkdir(void *user, const char *path, mode_t mode)
{
    return goes_wrong(user, MKDIR) ? -1 : io_calls_plain()->mkdir(NULL, path, mode);
}

static int faulty_rename(void *user, const char *from, const char *to)
{
    return goes_wrong(user, RENAME) ? -1 : io_calls_plain()->rename(NULL, from, to);
}

static int faulty_unlink(void *user, const char *path)
{
    return goes_wrong(user, UNLINK) ? -1 : io_calls_plain()->unlink(NULL, path);
}

/* A failed close has closed, as Linux has it. */
static int faulty_close(void *user, int fd)
{
    (void)io_calls_plain()->close(NULL, fd);
    return goes_wrong(user, CLOSE) ? -1 : 0;
}

struct io_calls faulty_calls(struct faulty_calls *calls)
{
    return (struct io_calls){
        .open = faulty_open,
        .fstat = faulty_fstat,
        .pread = faulty_pread,
        .write = faulty_write,
        .fsync = faulty_fsync,
        .ftruncate = faulty_ftruncate,
        .mkdir = faulty_mkdir,
        .rename = faulty_rename,
        .unlink = faulty_unlink,
        .close = faulty_close,
        .user = calls,
    };
}
