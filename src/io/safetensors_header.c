/*
 * The header of a safetensors file, from JSON text to a table that can be relied on.
 *
 * Everything is checked here: members and their types, dimensions whose product overflows, places
 * outside the file, overlaps, gaps, names that occur twice (cJSON would show the first and hide the
 * second). Memory is taken for as many entries as the text has, never for a number it claims.
 */
#include "io/safetensors_table.h"
#include "json/json.h"

#include "core/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the functions below share. */
struct parser {
    struct der_ctx *ctx;
    const char *source;
    size_t data_size;
    struct safetensors_table *table;
};

static enum der_status fail(const struct parser *p, const char *name, const char *sentence)
{
    return ctx_fail(p->ctx, DER_FORMAT, "%s: tensor " SAFETENSORS_NAME " %s", p->source, name,
                    sentence);
}

/* The numbers of a header are counts and places, all below 2^53. */
static bool read_count(const cJSON *item, int64_t *out)
{
    const double limit = 9007199254740992.0;
    double value = item->valuedouble;
    if (!cJSON_IsNumber(item) || !(value >= 0.0 && value <= limit) || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}

static enum der_status read_dtype(const struct parser *p, const cJSON *entry,
                                  struct safetensors_tensor *tensor)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    if (!cJSON_IsString(item))
        return fail(p, tensor->name, "has no 'dtype' that is a text");
    for (int i = 0; i < SAFETENSORS_DTYPES; i++) {
        tensor->dtype = (enum safetensors_dtype)i;
        if (strcmp(item->valuestring, safetensors_dtype_name(tensor->dtype)) == 0)
            return DER_OK;
    }
    return ctx_fail(p->ctx, DER_FORMAT,
                    "%s: tensor " SAFETENSORS_NAME
                    " has elements of type '%.20s', which is not supported",
                    p->source, tensor->name, item->valuestring);
}

static enum der_status read_shape(const struct parser *p, const cJSON *entry,
                                  struct safetensors_tensor *tensor)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    if (!cJSON_IsArray(shape))
        return fail(p, tensor->name, "has no 'shape' that is an array");
    const cJSON *item;
    tensor->rank = 0;
    cJSON_ArrayForEach(item, shape)
    {
        if (tensor->rank == SAFETENSORS_MAX_RANK)
            return fail(p, tensor->name, "has more than 8 dimensions");
        if (!read_count(item, &tensor->dim[tensor->rank]))
            return fail(p, tensor->name, "has a dimension that is no whole number from 0 to 2^53");
        tensor->rank++;
    }
    if (!safetensors_size(tensor, &tensor->size))
        return fail(p, tensor->name, "has more bytes than can be counted");
    return DER_OK;
}

static enum der_status read_offsets(const struct parser *p, const cJSON *entry,
                                    struct safetensors_tensor *tensor)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    int64_t begin;
    int64_t end;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2)
        return fail(p, tensor->name, "has no 'data_offsets' that is an array of two");
    if (!read_count(offsets->child, &begin) || !read_count(offsets->child->next, &end))
        return fail(p, tensor->name, "has a data offset that is no whole number from 0 to 2^53");
    if (begin > end)
        return fail(p, tensor->name, "ends before it begins");
    if ((uint64_t)end > p->data_size)
        return ctx_fail(p->ctx, DER_FORMAT,
                        "%s: tensor " SAFETENSORS_NAME
                        " ends at byte %jd of the data, which has %zu",
                        p->source, tensor->name, (intmax_t)end, p->data_size);
    if ((uint64_t)(end - begin) != tensor->size)
        return ctx_fail(p->ctx, DER_FORMAT,
                        "%s: tensor " SAFETENSORS_NAME " has %jd bytes, its shape asks for %zu",
                        p->source, tensor->name, (intmax_t)(end - begin), tensor->size);
    tensor->begin = (size_t)begin;
    return DER_OK;
}

static enum der_status read_tensor(const struct parser *p, const cJSON *entry)
{
    struct safetensors_tensor *tensor = &p->table->tensors[p->table->n];
    *tensor = (struct safetensors_tensor){.name = entry->string};
    if (!safetensors_name_is_valid(entry->string))
        return ctx_fail(p->ctx, DER_FORMAT,
                        "%s: the name of tensor %d is empty or holds control characters", p->source,
                        p->table->n + 1);
    /* With three members and three names looked for, none is there twice and none is foreign. */
    if (!cJSON_IsObject(entry) || cJSON_GetArraySize(entry) != 3)
        return fail(p, entry->string, "must have the members dtype, shape and data_offsets alone");
    TRY(read_dtype(p, entry, tensor));
    TRY(read_shape(p, entry, tensor));
    TRY(read_offsets(p, entry, tensor));
    p->table->n++;
    return DER_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum der_status check_metadata(const struct parser *p, const cJSON *metadata)
{
    if (!cJSON_IsObject(metadata))
        return ctx_fail(p->ctx, DER_FORMAT, "%s: its metadata is no object", p->source);
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item))
            return ctx_fail(p->ctx, DER_FORMAT, "%s: metadata " SAFETENSORS_NAME " is no text",
                            p->source, item->string);
        n++;
    }
    const char **keys = mem_alloc(&p->ctx->mem, n, sizeof *keys);
    if (!keys)
        return ctx_nomem(p->ctx);
    n = 0;
    cJSON_ArrayForEach(item, metadata)
    {
        keys[n++] = item->string;
    }
    if (n > 0)
        qsort((void *)keys, n, sizeof *keys, compare_texts);
    enum der_status status = DER_OK;
    for (size_t i = 1; i < n && status == DER_OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            status =
                ctx_fail(p->ctx, DER_FORMAT, "%s: metadata " SAFETENSORS_NAME " is there twice",
                         p->source, keys[i]);
    mem_free(&p->ctx->mem, (void *)keys);
    return status;
}

static enum der_status read_entries(const struct parser *p, const cJSON *root,
                                    const cJSON **metadata)
{
    size_t n = (size_t)cJSON_GetArraySize(root);
    p->table->tensors = mem_alloc(&p->ctx->mem, n, sizeof *p->table->tensors);
    if (!p->table->tensors)
        return ctx_nomem(p->ctx);
    p->table->capacity = (int)n;
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, SAFETENSORS_METADATA) != 0) {
            TRY(read_tensor(p, item));
            continue;
        }
        if (*metadata)
            return ctx_fail(p->ctx, DER_FORMAT, "%s: its metadata is there twice", p->source);
        TRY(check_metadata(p, item));
        *metadata = item;
    }
    return DER_OK;
}

/* By place; of those without bytes at one place, by name, so that the order is one order. */
static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a;
    const struct safetensors_tensor *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->size != right->size)
        return left->size < right->size ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* The tensors must tile the data. */
static enum der_status check_places(const struct parser *p)
{
    struct safetensors_table *table = p->table;
    if (table->n > 0)
        qsort(table->tensors, (size_t)table->n, sizeof *table->tensors, compare_places);
    size_t end = 0;
    for (int i = 0; i < table->n; i++) {
        const struct safetensors_tensor *tensor = &table->tensors[i];
        if (tensor->begin < end)
            return fail(p, tensor->name, "overlaps another one");
        if (tensor->begin > end)
            return ctx_fail(p->ctx, DER_FORMAT,
                            "%s: %zu bytes before tensor " SAFETENSORS_NAME " belong to none",
                            p->source, tensor->begin - end, tensor->name);
        end += tensor->size;
    }
    if (end < p->data_size)
        return ctx_fail(p->ctx, DER_FORMAT, "%s: the last %zu bytes belong to no tensor", p->source,
                        p->data_size - end);
    return DER_OK;
}

enum der_status safetensors_header_parse(struct der_ctx *ctx, const char *source, const char *text,
                                         size_t length, size_t data_size, cJSON **root,
                                         const cJSON **metadata, struct safetensors_table *table)
{
    *root = NULL;
    *metadata = NULL;
    *table = (struct safetensors_table){0};
    if (length == 0 || text[0] != '{')
        return ctx_fail(ctx, DER_FORMAT, "%s: its header does not begin with '{'", source);
    if (!utf8_is_valid(text, length))
        return ctx_fail(ctx, DER_FORMAT, "%s: its header is not UTF-8 text", source);
    TRY(json_parse(ctx, source, text, length, root));
    const struct parser p = {.ctx = ctx, .source = source, .data_size = data_size, .table = table};
    enum der_status status = read_entries(&p, *root, metadata);
    if (status == DER_OK)
        status = check_places(&p);
    if (status == DER_OK)
        status = safetensors_table_index(ctx, source, table);
    if (status == DER_OK)
        return DER_OK;
    safetensors_table_free(&ctx->mem, table);
    json_free(*root);
    *root = NULL;
    *metadata = NULL;
    return status;
}
