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

static bool is_alike(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
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

enum der_status safetensors_check(struct safetensors_file *file,
                                  const struct safetensors_tensor *wanted)
{
    const struct safetensors_tensor *tensor = safetensors_find(file, wanted->name);
    char has[SHAPE_CHARS];
    char wants[SHAPE_CHARS];
    if (!tensor)
        return ctx_fail(file->ctx, DER_FORMAT, "%s: there is no tensor " SAFETENSORS_NAME,
                        file->path, wanted->name);
    if (!is_alike(tensor, wanted))
        return ctx_fail(file->ctx, DER_FORMAT, "%s: tensor " SAFETENSORS_NAME " is %s, want %s",
                        file->path, tensor->name, describe(tensor, has), describe(wanted, wants));
    return DER_OK;
}

enum der_status safetensors_read(struct safetensors_file *file,
                                 const struct safetensors_tensor *wanted,
                                 enum safetensors_values values, void *dst)
{
    TRY(safetensors_check(file, wanted));
    const struct safetensors_tensor *tensor = safetensors_find(file, wanted->name);
    TRY(read_exactly(file, dst, tensor->size, file->data_begin + tensor->begin));
    if (values == SAFETENSORS_FINITE && !is_finite(tensor, dst))
        return ctx_fail(file->ctx, DER_FORMAT,
                        "%s: tensor " SAFETENSORS_NAME " holds a value that is not finite",
                        file->path, tensor->name);
    return DER_OK;
}
