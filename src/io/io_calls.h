/*
 * The system calls through which files are written and read in pieces, as a table: tests put their
 * own functions there and make the n-th call fail, be interrupted or come up short.
 */
#ifndef IO_IO_CALLS_H
#define IO_IO_CALLS_H

#include "core/ctx.h"

#include <sys/stat.h>
#include <sys/types.h>

/* Each behaves as the call of its name, errno included; `user` is the last field. */
struct io_calls {
    int (*open)(void *user, const char *path, int flags, mode_t mode);
    int (*fstat)(void *user, int fd, struct stat *info);
    ssize_t (*pread)(void *user, int fd, void *dst, size_t n, off_t offset);
    ssize_t (*write)(void *user, int fd, const void *src, size_t n);
    int (*fsync)(void *user, int fd);
    int (*ftruncate)(void *user, int fd, off_t size);
    int (*mkdir)(void *user, const char *path, mode_t mode);
    int (*rename)(void *user, const char *from, const char *to);
    int (*unlink)(void *user, const char *path);
    int (*close)(void *user, int fd);
    void *user;
};

/* The system's own calls. Every function of this room that takes a table takes NULL for it. */
const struct io_calls *io_calls_plain(void);

/* Records "<what> <path>: <text of errno>" and returns DER_IO. */
enum der_status io_fail(struct der_ctx *ctx, const char *what, const char *path, int error);

/* The calls, repeated when a signal interrupted them. */
int io_open(const struct io_calls *io, const char *path, int flags, mode_t mode);
int io_fsync(const struct io_calls *io, int fd);
int io_ftruncate(const struct io_calls *io, int fd, off_t size);

/* Closes; -1 with errno when what was written may be lost. An interrupted close has closed. */
int io_close(const struct io_calls *io, int fd);

/* Writes all of it, in as many calls as it takes. */
int io_write_all(const struct io_calls *io, int fd, const void *src, size_t size);

/* Reads up to `size` bytes at a place, fewer only at the end of the file; -1: errno. */
ssize_t io_read_at(const struct io_calls *io, int fd, void *dst, size_t size, off_t offset);

/* Makes names in a folder durable. A file system that cannot do that for folders is no failure. */
int io_fsync_folder(const struct io_calls *io, int fd);

/* Opens the folder that `path` lies in. */
NODISCARD enum der_status io_open_folder_of(struct der_ctx *ctx, const struct io_calls *io,
                                            const char *path, int *fd);

#endif
