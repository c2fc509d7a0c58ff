/*
 * Files read whole, with a limit on their size.
 *
 * Failures are told in a struct fault instead of the context, because loader threads read files
 * too and must not write the context's sentence at the same time.
 */
#ifndef CORE_FILE_H
#define CORE_FILE_H

#include "core/ctx.h"

#include <sys/types.h>

/* A sentence about a failure. */
struct fault {
    char text[CTX_ERROR_MAX];
};

/* Records the sentence and returns `status`, as ctx_fail does. */
enum der_status fault_set(struct fault *fault, enum der_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: "<what> <path>: <text of errno>", DER_IO. */
enum der_status fault_errno(struct fault *fault, const char *what, const char *path, int error);

/* How bytes are fetched. Tests put their own function here to meet short reads and errors. */
struct file_io {
    ssize_t (*read)(void *user, int fd, void *dst, size_t n); /* as read(2), errno included */
    void *user;                                               /* first argument of `read` */
};

/* Bytes of a file. One zero byte follows them, so that text can be read as a string. The block is
 * reused, and grown when needed, by the next file_read into it. Starts as {0}. */
struct file_bytes {
    uint8_t *data;
    size_t size;     /* of the file */
    size_t capacity; /* of the block */
};

/* Reads the regular file `path`. `io` may be NULL: read(2). Larger than `max_bytes`, not a regular
 * file, or changed in between: an error that names the file. */
NODISCARD enum der_status file_read(struct mem *mem, const struct file_io *io, const char *path,
                                    size_t max_bytes, struct file_bytes *bytes,
                                    struct fault *fault);
void file_bytes_free(struct mem *mem, struct file_bytes *bytes);

#endif
