/*
 * Fuzz target: a safetensors file is either refused with a sentence, or its tensors tile the data,
 * are found by name, and can be read to the last byte.
 */
#include "io/safetensors.h"

#include <der/der.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The input as a file: every call is answered from memory, since real files are far too slow here. */
struct input {
    const uint8_t *data;
    size_t size;
    int n_open;
};

static int input_open(void *user, const char *path, int flags, mode_t mode)
{
    struct input *input = user;
    (void)path;
    (void)flags;
    (void)mode;
    input->n_open++;
    return 0;
}

static int input_fstat(void *user, int fd, struct stat *info)
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

static ssize_t input_pread(void *user, int fd, void *dst, size_t n, off_t offset)
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

static int input_close(void *user, int fd)
{
    struct input *input = user;
    (void)fd;
    input->n_open--;
    return 0;
}

static void read_tensor(struct der_ctx *ctx, struct safetensors_file *file,
                        const struct safetensors_tensor *tensor, const uint8_t *expected)
{
    /* A block of just that size lets the address sanitizer see a write behind its end. */
    uint8_t *content = malloc(tensor->size > 0 ? tensor->size : 1);
    require(content != NULL);
    require(safetensors_read(file, tensor, SAFETENSORS_ANY, content) == DER_OK);
    require(tensor->size == 0 || memcmp(content, expected, tensor->size) == 0);
    enum der_status status = safetensors_read(file, tensor, SAFETENSORS_FINITE, content);
    require(status == DER_OK || (status == DER_FORMAT && ctx->error[0] != 0));
    free(content);
}

static void check_file(struct der_ctx *ctx, struct safetensors_file *file, const uint8_t *data,
                       size_t size)
{
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | data[i];
    size_t end = 8 + (size_t)header;
    for (int i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        size_t bytes;
        require(safetensors_size(tensor, &bytes) && bytes == tensor->size);
        require(8 + header + tensor->begin == end);
        require(tensor->size <= size - end);
        require(safetensors_find(file, tensor->name) == tensor);
        read_tensor(ctx, file, tensor, data + end);
        end += tensor->size;
    }
    require(end == size);
    const char *text = safetensors_metadata(file, "der");
    require(!text || strlen(text) < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = NULL;
    const struct der_ctx_options options = {.threads = 1};
    struct safetensors_file *file;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = {
        .open = input_open,
        .fstat = input_fstat,
        .pread = input_pread,
        .close = input_close,
        .user = &input,
    };
    require(der_ctx_new(&options, &ctx) == DER_OK);
    enum der_status status = safetensors_open(ctx, &io, "fuzz", &file);
    require((status == DER_OK) == (file != NULL));
    if (status == DER_OK)
        check_file(ctx, file, data, size);
    else
        require(status == DER_FORMAT && ctx->error[0] != 0);
    safetensors_close(file);
    require(input.n_open == 0);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}
