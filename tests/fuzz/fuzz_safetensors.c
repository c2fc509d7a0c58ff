/*
 * Fuzz target: a safetensors file is either refused with a sentence, or its tensors tile the data,
 * are found by name, and can be read to the last byte.
 */
#include "fuzz_file.h"
#include "io/safetensors.h"

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
    struct der_ctx *ctx = input_ctx();
    struct safetensors_file *file;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    enum der_status status = safetensors_open(ctx, &io, "fuzz", &file);
    require((status == DER_OK) == (file != NULL));
    if (status == DER_OK)
        check_file(ctx, file, data, size);
    else
        check_refusal(ctx, status);
    safetensors_close(file);
    input_end(ctx, &input);
    return 0;
}
