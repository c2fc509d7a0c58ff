#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ERRNO_TEXT_MAX = 128 };

enum der_status fault_set(struct fault *fault, enum der_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return status;
}

enum der_status fault_errno(struct fault *fault, const char *what, const char *path, int error)
{
    char text[ERRNO_TEXT_MAX];
    if (strerror_r(error, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", error);
    return fault_set(fault, DER_IO, "%s %s: %s", what, path, text);
}

static ssize_t plain_read(void *user, int fd, void *dst, size_t n)
{
    (void)user;
    return read(fd, dst, n);
}

static const struct file_io plain_io = {.read = plain_read};

/* Makes room for `size` bytes and the zero behind them. What was there before is not kept. */
static bool reserve(struct mem *mem, struct file_bytes *bytes, size_t size)
{
    size_t wanted;
    if (!size_add(size, 1, &wanted))
        return false;
    if (wanted <= bytes->capacity)
        return true;
    file_bytes_free(mem, bytes);
    bytes->data = mem_alloc(mem, wanted, 1);
    if (!bytes->data)
        return false;
    bytes->capacity = wanted;
    return true;
}

/* Reads until the end or until the block is full: one byte more than the file should have. */
static enum der_status fill(const struct file_io *io, int fd, const char *path,
                            struct file_bytes *bytes, size_t expected, struct fault *fault)
{
    size_t got = 0;
    while (got <= expected) {
        ssize_t n = io->read(io->user, fd, bytes->data + got, expected + 1 - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fault_errno(fault, "cannot read", path, errno);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    if (got != expected)
        return fault_set(fault, DER_IO, "%s: %s %zu bytes, its size when opened", path,
                         got < expected ? "ends before" : "goes on after", expected);
    bytes->data[expected] = 0;
    bytes->size = expected;
    return DER_OK;
}

static enum der_status read_open(struct mem *mem, const struct file_io *io, int fd,
                                 const char *path, size_t max_bytes, struct file_bytes *bytes,
                                 struct fault *fault)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fault_errno(fault, "cannot examine", path, errno);
    if (!S_ISREG(info.st_mode))
        return fault_set(fault, DER_IO, "%s is a %s, want a regular file", path,
                         S_ISDIR(info.st_mode) ? "folder" : "special file");
    if (info.st_size < 0 || (uintmax_t)info.st_size > max_bytes)
        return fault_set(fault, DER_FORMAT, "%s has %jd bytes, at most %zu are read", path,
                         (intmax_t)info.st_size, max_bytes);
    if (!reserve(mem, bytes, (size_t)info.st_size))
        return fault_set(fault, DER_NOMEM, "out of memory for the %jd bytes of %s",
                         (intmax_t)info.st_size, path);
    return fill(io, fd, path, bytes, (size_t)info.st_size, fault);
}

enum der_status file_read(struct mem *mem, const struct file_io *io, const char *path,
                          size_t max_bytes, struct file_bytes *bytes, struct fault *fault)
{
    bytes->size = 0;
    /* Not blocking: a named pipe that nobody writes to would hold us for ever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fault_errno(fault, "cannot open", path, errno);
    enum der_status status = read_open(mem, io ? io : &plain_io, fd, path, max_bytes, bytes, fault);
    (void)close(fd);
    return status;
}

void file_bytes_free(struct mem *mem, struct file_bytes *bytes)
{
    mem_free(mem, bytes->data);
    *bytes = (struct file_bytes){0};
}
