/*
 * safetensors files from the outside: the length of the header, the header, and data on demand.
 */
#include "io/safetensors_table.h"
#include "json/json.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is read and written as it lies");

enum { SHAPE_CHARS = 24 * SAFETENSORS_MAX_RANK };

struct safetensors_file {
    struct der_ctx *ctx;
    const struct io_calls *io;
    char *path;
    int fd;
    size_t data_begin;     /* place of the data in the file */
    cJSON *root;           /* the header; owner of all names and texts */
    const cJSON *metadata; /* within `root`; NULL: none */
    struct safetensors_table table;
};

/* Reads exactly that many bytes. */
static enum der_status read_exactly(const struct safetensors_file *file, void *dst, size_t size,
                                    size_t offset)
{
    ssize_t n = io_read_at(file->io, file->fd, dst, size, (off_t)offset);
    if (n < 0)
        return io_fail(file->ctx, "cannot read", file->path, errno);
    if ((size_t)n != size)
        return ctx_fail(file->ctx, DER_IO, "%s became shorter while it was read", file->path);
    return DER_OK;
}

/* Size of the file and length of its header, such that the header fits into the file. */
static enum der_status measure(struct safetensors_file *file, size_t *size, size_t *header)
{
    struct stat info;
    uint8_t bytes[SAFETENSORS_LENGTH_BYTES];
    if (file->io->fstat(file->io->user, file->fd, &info) != 0)
        return io_fail(file->ctx, "cannot examine", file->path, errno);
    if (!S_ISREG(info.st_mode))
        return ctx_fail(file->ctx, DER_IO, "%s is a %s, want a regular file", file->path,
                        S_ISDIR(info.st_mode) ? "folder" : "special file");
    *size = (size_t)info.st_size;
    if (*size < sizeof bytes)
        return ctx_fail(file->ctx, DER_FORMAT, "%s: %zu bytes are no safetensors file", file->path,
                        *size);
    TRY(read_exactly(file, bytes, sizeof bytes, 0));
    uint64_t length = 0;
    for (int i = SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > *size - sizeof bytes)
        return ctx_fail(file->ctx, DER_FORMAT,
                        "%s: a header of %ju bytes does not fit into a file of %zu", file->path,
                        (uintmax_t)length, *size);
    if (length > SAFETENSORS_MAX_HEADER)
        return ctx_fail(file->ctx, DER_FORMAT, "%s: a header of %ju bytes, at most %d are read",
                        file->path, (uintmax_t)length, SAFETENSORS_MAX_HEADER);
    *header = (size_t)length;
    return DER_OK;
}

static enum der_status read_header(struct safetensors_file *file)
{
    struct der_ctx *ctx = file->ctx;
    size_t size = 0;
    size_t length = 0;
    TRY(measure(file, &size, &length));
    char *text = mem_alloc(&ctx->mem, length, 1);
    if (!text)
        return ctx_nomem(ctx);
    file->data_begin = SAFETENSORS_LENGTH_BYTES + length;
    enum der_status status = read_exactly(file, text, length, SAFETENSORS_LENGTH_BYTES);
    if (status == DER_OK)
        status = safetensors_header_parse(ctx, file->path, text, length, size - file->data_begin,
                                          &file->root, &file->metadata, &file->table);
    mem_free(&ctx->mem, text);
    return status;
}

enum der_status safetensors_open(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                 struct safetensors_file **out)
{
    *out = NULL;
    struct safetensors_file *file = mem_zalloc(&ctx->mem, 1, sizeof *file);
    if (!file)
        return ctx_nomem(ctx);
    file->ctx = ctx;
    file->io = io ? io : io_calls_plain();
    file->fd = -1;
    enum der_status status = DER_OK;
    file->path = mem_strdup(&ctx->mem, path);
    if (!file->path)
        status = ctx_nomem(ctx);
    if (status == DER_OK) {
        /* Not blocking: a named pipe that nobody writes to would hold us for ever. */
        file->fd = io_open(file->io, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
        if (file->fd < 0)
            status = io_fail(ctx, "cannot open", path, errno);
    }
    if (status == DER_OK)
        status = read_header(file);
    if (status != DER_OK) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return DER_OK;
}

void safetensors_close(struct safetensors_file *file)
{
    if (!file)
        return;
    struct mem *mem = &file->ctx->mem;
    if (file->fd >= 0)
        (void)io_close(file->io, file->fd);
    safetensors_table_free(mem, &file->table);
    json_free(file->root);
    mem_free(mem, file->path);
    mem_free(mem, file);
}

int safetensors_count(const struct safetensors_file *file)
{
    return file->table.n;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors_file *file, int index)
{
    assert(index >= 0 && index < file->table.n);
    return &file->table.tensors[index];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors_file *file,
                                                  const char *name)
{
    return safetensors_table_find(&file->table, name);
}

const char *safetensors_metadata(const struct safetensors_file *file, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(file->metadata, key);
    return item ? item->valuestring : NULL;
}

/* "F32 [2, 3]". */
static const char *describe(const struct safetensors_tensor *tensor, char text[SHAPE_CHARS])
{
    int n = snprintf(text, SHAPE_CHARS, "%s [", safetensors_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank && n < SHAPE_CHARS; i++)
        n += snprintf(text + n, (size_t)(SHAPE_CHARS - n), "%s%jd", i > 0 ? ", " : "",
                      (intmax_t)tensor->dim[i]);
    if (n < SHAPE_CHARS)
        (void)snprintf(text + n, (size_t)(SHAPE_CHARS - n), "]");
    return text;
}

static bool has_shape_of(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

static bool is_float(enum safetensors_dtype dtype)
{
    return dtype == SAFETENSORS_F64 || dtype == SAFETENSORS_F32 || dtype == SAFETENSORS_F16 ||
           dtype == SAFETENSORS_BF16;
}

static bool is_finite(const struct safetensors_tensor *tensor, const void *data)
{
    size_t n = tensor->size / safetensors_dtype_bytes(tensor->dtype);
    const float *floats = data;
    const double *doubles = data;
    for (size_t i = 0; i < n && tensor->dtype == SAFETENSORS_F32; i++)
        if (!isfinite(floats[i]))
            return false;
    for (size_t i = 0; i < n && tensor->dtype == SAFETENSORS_F64; i++)
        if (!isfinite(doubles[i]))
            return false;
    return true;
}

/* Finds the tensor that a caller wants; `any_float`: of whatever width its floats are. */
static enum der_status look_up(struct safetensors_file *file,
                               const struct safetensors_tensor *wanted, bool any_float,
                               const struct safetensors_tensor **out)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, wanted->name);
    char has[SHAPE_CHARS];
    char wants[SHAPE_CHARS];
    *out = tensor;
    if (!tensor)
        return ctx_fail(file->ctx, DER_FORMAT, "%s: there is no tensor " SAFETENSORS_NAME,
                        file->path, wanted->name);
    bool has_type = any_float ? is_float(tensor->dtype) : tensor->dtype == wanted->dtype;
    if (!has_type || !has_shape_of(tensor, wanted))
        return ctx_fail(file->ctx, DER_FORMAT, "%s: tensor " SAFETENSORS_NAME " is %s, want %s",
                        file->path, tensor->name, describe(tensor, has), describe(wanted, wants));
    return DER_OK;
}

enum der_status safetensors_check(struct safetensors_file *file,
                                  const struct safetensors_tensor *wanted)
{
    const struct safetensors_tensor *tensor;
    return look_up(file, wanted, false, &tensor);
}

enum der_status safetensors_check_floats(struct safetensors_file *file,
                                         const struct safetensors_tensor *wanted)
{
    const struct safetensors_tensor *tensor;
    return look_up(file, wanted, true, &tensor);
}

static enum der_status fail_finite(const struct safetensors_file *file,
                                   const struct safetensors_tensor *tensor)
{
    return ctx_fail(file->ctx, DER_FORMAT,
                    "%s: tensor " SAFETENSORS_NAME " holds a value that is not finite", file->path,
                    tensor->name);
}

enum der_status safetensors_read(struct safetensors_file *file,
                                 const struct safetensors_tensor *wanted,
                                 enum safetensors_values values, void *dst)
{
    const struct safetensors_tensor *tensor;
    TRY(look_up(file, wanted, false, &tensor));
    TRY(read_exactly(file, dst, tensor->size, file->data_begin + tensor->begin));
    if (values == SAFETENSORS_FINITE && !is_finite(tensor, dst))
        return fail_finite(file, tensor);
    return DER_OK;
}

/* ---- floats of any width --------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Sign, 5 bits of exponent (bias 15), 10 of fraction. */
static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;
    if (exponent == 0) /* zero and what is below the smallest normal number: fraction * 2^-24 */
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    if (exponent == 0x1f)
        return from_bits(sign | 0x7f800000u | fraction << 13);
    return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static float float_at(enum safetensors_dtype dtype, const void *data, size_t i)
{
    switch (dtype) {
    case SAFETENSORS_F64:
        return (float)((const double *)data)[i];
    case SAFETENSORS_F16:
        return from_half(((const uint16_t *)data)[i]);
    case SAFETENSORS_BF16:
        return from_bits((uint32_t)((const uint16_t *)data)[i] << 16);
    default:
        return ((const float *)data)[i];
    }
}

enum der_status safetensors_read_floats(struct safetensors_file *file,
                                        const struct safetensors_tensor *wanted, float *dst)
{
    const struct safetensors_tensor *tensor;
    TRY(look_up(file, wanted, true, &tensor));
    void *stored = mem_alloc(&file->ctx->mem, tensor->size, 1);
    if (!stored)
        return ctx_nomem(file->ctx);
    enum der_status status =
        read_exactly(file, stored, tensor->size, file->data_begin + tensor->begin);
    size_t n = tensor->size / safetensors_dtype_bytes(tensor->dtype);
    for (size_t i = 0; i < n && status == DER_OK; i++) {
        dst[i] = float_at(tensor->dtype, stored, i);
        if (!isfinite(dst[i]))
            status = fail_finite(file, tensor);
    }
    mem_free(&file->ctx->mem, stored);
    return status;
}
