/*
 * The input of a fuzz target as a file: every call is answered from memory, since real files are far too slow
 * here.
 */
#ifndef FUZZ_FILE_H
#define FUZZ_FILE_H

#include "io/io_calls.h"

#include <der/der.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool holds)
{
    if (!holds)
        abort();
}

struct input {
    const uint8_t *data;
    size_t size;
    int n_open;
};

static inline int input_open(void *user, const char *path, int flags, mode_t mode)
{
    struct input *input = user;
    (void)path;
    (void)flags;
    (void)mode;
    input->n_open++;
    return 0;
}

static inline int input_fstat(void *user, int fd, struct stat *info)
{
    const struct input *input = user;
    (void)fd;
    static struct stat regular; /* what some regular file looks like */
    if (!S_ISREG(regular.st_mode))
        require(stat("/proc/self/exe", &regular) == 0 && S_ISREG(regular.st_mode));
    *info = regular;
    info->st_size = (off_t)input->size;
    return 0;
}

static inline ssize_t input_pread(void *user, int fd, void *dst, size_t n, off_t offset)
{
    const struct input *input = user;
    (void)fd;
    require(offset >= 0 && (size_t)offset <= input->size);
    size_t rest = input->size - (size_t)offset;
    size_t taken = n < rest ? n : rest;
    if (taken > 0)
        memcpy(dst, input->data + offset, taken);
    return (ssize_t)taken;
}

static inline int input_close(void *user, int fd)
{
    struct input *input = user;
    (void)fd;
    input->n_open--;
    return 0;
}

/* Good as long as `input` is. */
static inline struct io_calls input_calls(struct input *input)
{
    return (struct io_calls){.open = input_open,
                             .fstat = input_fstat,
                             .pread = input_pread,
                             .close = input_close,
                             .user = input};
}

static inline struct der_ctx *input_ctx(void)
{
    struct der_ctx *ctx = NULL;
    const struct der_ctx_options options = {.threads = 1};
    require(der_ctx_new(&options, &ctx) == DER_OK);
    return ctx;
}

/* Nothing is left behind. */
static inline void input_end(struct der_ctx *ctx, const struct input *input)
{
    require(input->n_open == 0);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
}

/* A refusal has its sentence. */
static inline void check_refusal(const struct der_ctx *ctx, enum der_status status)
{
    require(status == DER_FORMAT && strlen(der_ctx_error(ctx)) > 0);
}

#endif
