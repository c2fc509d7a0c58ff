/*
 * Fuzz target: a safetensors file is either refused with a sentence, or its tensors tile the data,
 * are found by name, and can be read to the last byte.
 *
 * The input lies in a file without a name, so that the reader meets a real one.
 */
#include "io/safetensors.h"

#include <der/der.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* The file, with the input in it. */
static int input_file(const uint8_t *data, size_t size)
{
    static FILE *stream;
    if (!stream)
        stream = tmpfile();
    require(stream != NULL);
    int fd = fileno(stream);
    require(ftruncate(fd, 0) == 0);
    require(pwrite(fd, data, size, 0) == (ssize_t)size);
    return fd;
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
    char path[64];
    require(der_ctx_new(&options, &ctx) == DER_OK);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", input_file(data, size));
    enum der_status status = safetensors_open(ctx, NULL, path, &file);
    require((status == DER_OK) == (file != NULL));
    if (status == DER_OK)
        check_file(ctx, file, data, size);
    else
        require(status == DER_FORMAT && ctx->error[0] != 0);
    safetensors_close(file);
    require(der_ctx_memory(ctx).n_live == 0);
    der_ctx_free(ctx);
    return 0;
}
