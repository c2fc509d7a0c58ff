/*
 * safetensors files towards the outside: declarations first, because the header that holds them
 * comes first, then data in the order of the declarations.
 */
#include "core/arena.h"
#include "core/utf8.h"
#include "io/durable.h"
#include "io/safetensors_table.h"
#include "json/json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    TABLE_START = 64,
    NUMBERS_CHARS = 24 * (SAFETENSORS_MAX_RANK + 1), /* "[1, 2, ...]" */
};

struct safetensors_writer {
    struct der_ctx *ctx;
    struct durable *file;
    char *path;                     /* for messages */
    struct arena names;             /* of the tensors */
    struct safetensors_table table; /* all that was declared */
    cJSON *metadata;                /* object; NULL: none yet */
    size_t size;                    /* bytes of all tensors declared */
    bool has_header;                /* the header is written: nothing more can be declared */
    int current;                    /* the tensor that is being put */
    size_t filled;                  /* bytes of it so far */
};

static void give_back(struct safetensors_writer *writer)
{
    struct mem *mem = &writer->ctx->mem;
    safetensors_table_free(mem, &writer->table);
    arena_fini(&writer->names);
    json_free(writer->metadata);
    mem_free(mem, writer->path);
    mem_free(mem, writer);
}

enum der_status safetensors_writer_new(struct der_ctx *ctx, const struct io_calls *io,
                                       const char *path, struct safetensors_writer **out)
{
    *out = NULL;
    struct safetensors_writer *writer = mem_zalloc(&ctx->mem, 1, sizeof *writer);
    if (!writer)
        return ctx_nomem(ctx);
    writer->ctx = ctx;
    arena_init(&writer->names, &ctx->mem);
    writer->path = mem_strdup(&ctx->mem, path);
    enum der_status status =
        writer->path ? durable_open(ctx, io, path, &writer->file) : ctx_nomem(ctx);
    if (status != DER_OK) {
        give_back(writer);
        return status;
    }
    *out = writer;
    return DER_OK;
}

static bool reserve(struct safetensors_writer *writer)
{
    struct safetensors_table *table = &writer->table;
    if (table->n < table->capacity)
        return true;
    int capacity = table->capacity > 0 ? table->capacity * 2 : TABLE_START;
    struct safetensors_tensor *tensors =
        mem_realloc(&writer->ctx->mem, table->tensors, (size_t)capacity, sizeof *table->tensors);
    if (!tensors)
        return false;
    table->tensors = tensors;
    table->capacity = capacity;
    return true;
}

enum der_status safetensors_declare(struct safetensors_writer *writer,
                                    const struct safetensors_tensor *tensor)
{
    assert(!writer->has_header);
    struct der_ctx *ctx = writer->ctx;
    struct safetensors_tensor copy = *tensor;
    size_t end;
    if (!safetensors_name_is_valid(tensor->name) || strcmp(tensor->name, SAFETENSORS_METADATA) == 0)
        return ctx_fail(ctx, DER_ARG, "%s: a tensor cannot be called " SAFETENSORS_NAME,
                        writer->path, tensor->name);
    if (tensor->rank < 0 || tensor->rank > SAFETENSORS_MAX_RANK ||
        !safetensors_size(tensor, &copy.size) || !size_add(writer->size, copy.size, &end))
        return ctx_fail(ctx, DER_ARG, "%s: tensor " SAFETENSORS_NAME " has an impossible shape",
                        writer->path, tensor->name);
    copy.begin = writer->size;
    if (copy.begin % safetensors_dtype_bytes(copy.dtype) != 0)
        return ctx_fail(ctx, DER_ARG,
                        "%s: tensor " SAFETENSORS_NAME " of type %s would begin at byte %zu; wider "
                        "types must come first",
                        writer->path, tensor->name, safetensors_dtype_name(copy.dtype), copy.begin);
    copy.name = arena_strdup(&writer->names, tensor->name);
    if (!copy.name || !reserve(writer))
        return ctx_nomem(ctx);
    writer->table.tensors[writer->table.n++] = copy;
    writer->size = end;
    return DER_OK;
}

enum der_status safetensors_describe(struct safetensors_writer *writer, const char *key,
                                     const char *text)
{
    assert(!writer->has_header);
    struct der_ctx *ctx = writer->ctx;
    if (!utf8_is_valid(key, strlen(key)) || !utf8_is_valid(text, strlen(text)))
        return ctx_fail(ctx, DER_ARG, "%s: metadata " SAFETENSORS_NAME " is not UTF-8 text",
                        writer->path, key);
    if (!writer->metadata)
        writer->metadata = cJSON_CreateObject();
    if (cJSON_GetObjectItemCaseSensitive(writer->metadata, key))
        return ctx_fail(ctx, DER_ARG, "%s: metadata " SAFETENSORS_NAME " is there already",
                        writer->path, key);
    return cJSON_AddStringToObject(writer->metadata, key, text) ? DER_OK : ctx_nomem(ctx);
}

/* "[1,2,3]", as text: cJSON would print large numbers with an exponent. */
static const char *numbers(const int64_t *values, int n, char text[NUMBERS_CHARS])
{
    int length = snprintf(text, NUMBERS_CHARS, "[");
    for (int i = 0; i < n; i++)
        length += snprintf(text + length, (size_t)(NUMBERS_CHARS - length), "%s%jd",
                           i > 0 ? "," : "", (intmax_t)values[i]);
    (void)snprintf(text + length, (size_t)(NUMBERS_CHARS - length), "]");
    return text;
}

static bool add_tensor(cJSON *root, const struct safetensors_tensor *tensor)
{
    char text[NUMBERS_CHARS];
    const int64_t places[] = {(int64_t)tensor->begin, (int64_t)(tensor->begin + tensor->size)};
    cJSON *entry = cJSON_AddObjectToObject(root, tensor->name);
    return entry &&
           cJSON_AddStringToObject(entry, "dtype", safetensors_dtype_name(tensor->dtype)) &&
           cJSON_AddRawToObject(entry, "shape", numbers(tensor->dim, tensor->rank, text)) &&
           cJSON_AddRawToObject(entry, "data_offsets", numbers(places, 2, text));
}

/* The text of the header; caller frees with mem_free. */
static enum der_status make_header(struct safetensors_writer *writer, char **text)
{
    struct der_ctx *ctx = writer->ctx;
    *text = NULL;
    cJSON *root = cJSON_CreateObject();
    bool is_complete = root != NULL;
    if (is_complete && writer->metadata) {
        is_complete = cJSON_AddItemToObject(root, SAFETENSORS_METADATA, writer->metadata);
        if (is_complete)
            writer->metadata = NULL; /* the tree owns it now */
    }
    for (int i = 0; i < writer->table.n && is_complete; i++)
        is_complete = add_tensor(root, &writer->table.tensors[i]);
    enum der_status status = is_complete ? json_print(ctx, root, false, text) : ctx_nomem(ctx);
    json_free(root);
    return status;
}

static enum der_status write_header(struct safetensors_writer *writer)
{
    static const char spaces[SAFETENSORS_ALIGNMENT] = {' ', ' ', ' ', ' ', ' ', ' ', ' ', ' '};
    uint8_t head[SAFETENSORS_LENGTH_BYTES];
    char *text;
    TRY(safetensors_table_index(writer->ctx, writer->path, &writer->table));
    TRY(make_header(writer, &text));
    size_t length = strlen(text);
    size_t padding =
        (SAFETENSORS_ALIGNMENT - length % SAFETENSORS_ALIGNMENT) % SAFETENSORS_ALIGNMENT;
    uint64_t total = length + padding;
    for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++)
        head[i] = (uint8_t)(total >> (8 * i));
    writer->has_header = total <= SAFETENSORS_MAX_HEADER;
    enum der_status status =
        writer->has_header
            ? durable_write(writer->file, head, sizeof head)
            : ctx_fail(writer->ctx, DER_ARG, "%s: a header of %ju bytes could not be read again",
                       writer->path, (uintmax_t)total);
    if (status == DER_OK)
        status = durable_write(writer->file, text, length);
    if (status == DER_OK)
        status = durable_write(writer->file, spaces, padding);
    mem_free(&writer->ctx->mem, text);
    return status;
}

/* Goes on to the first tensor that wants more bytes. */
static void move_on(struct safetensors_writer *writer)
{
    const struct safetensors_table *table = &writer->table;
    while (writer->current < table->n && writer->filled == table->tensors[writer->current].size) {
        writer->current++;
        writer->filled = 0;
    }
}

enum der_status safetensors_put(struct safetensors_writer *writer, const char *name,
                                const void *data, size_t size)
{
    struct der_ctx *ctx = writer->ctx;
    if (!writer->has_header)
        TRY(write_header(writer));
    if (size == 0)
        return DER_OK; /* a tensor without elements has no turn */
    move_on(writer);
    const struct safetensors_tensor *tensor = &writer->table.tensors[writer->current];
    if (writer->current == writer->table.n)
        return ctx_fail(ctx, DER_ARG, "%s: all tensors are complete, " SAFETENSORS_NAME " is more",
                        writer->path, name);
    if (strcmp(tensor->name, name) != 0)
        return ctx_fail(ctx, DER_ARG,
                        "%s: tensor " SAFETENSORS_NAME
                        " was put, the next one is " SAFETENSORS_NAME,
                        writer->path, name, tensor->name);
    if (size > tensor->size - writer->filled)
        return ctx_fail(ctx, DER_ARG,
                        "%s: tensor " SAFETENSORS_NAME " has %zu bytes, %zu more were put",
                        writer->path, name, tensor->size, size - (tensor->size - writer->filled));
    TRY(durable_write(writer->file, data, size));
    writer->filled += size;
    return DER_OK;
}

enum der_status safetensors_commit(struct safetensors_writer *writer)
{
    enum der_status status = DER_OK;
    if (!writer->has_header)
        status = write_header(writer);
    move_on(writer);
    if (status == DER_OK && writer->current < writer->table.n)
        status = ctx_fail(writer->ctx, DER_ARG, "%s: tensor " SAFETENSORS_NAME " is not complete",
                          writer->path, writer->table.tensors[writer->current].name);
    if (status == DER_OK)
        status = durable_commit(writer->file);
    else
        durable_abort(writer->file);
    give_back(writer);
    return status;
}

void safetensors_abort(struct safetensors_writer *writer)
{
    if (!writer)
        return;
    durable_abort(writer->file);
    give_back(writer);
}
