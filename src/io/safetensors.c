#include "io/safetensors.h"

#include "core/utf8.h"
#include "io/safetensors_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} DTYPES[SAFETENSORS_DTYPES] = {
    [SAFETENSORS_F64] = {"F64", 8}, [SAFETENSORS_I64] = {"I64", 8},
    [SAFETENSORS_F32] = {"F32", 4}, [SAFETENSORS_I32] = {"I32", 4},
    [SAFETENSORS_F16] = {"F16", 2}, [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_U8] = {"U8", 1},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    assert(dtype < SAFETENSORS_DTYPES);
    return DTYPES[dtype].name;
}

size_t safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
    assert(dtype < SAFETENSORS_DTYPES);
    return DTYPES[dtype].bytes;
}

bool safetensors_size(const struct safetensors_tensor *tensor, size_t *size)
{
    assert(tensor->rank >= 0 && tensor->rank <= SAFETENSORS_MAX_RANK);
    /* A product that overflows is refused even when a zero would follow, as the format's own library
     * does; the order of dimensions must not matter. */
    bool has_zero = false;
    size_t product = safetensors_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->dim[i] < 0)
            return false;
        has_zero = has_zero || tensor->dim[i] == 0;
        if (tensor->dim[i] > 0 && !size_mul(product, (size_t)tensor->dim[i], &product))
            return false;
    }
    *size = has_zero ? 0 : product;
    return true;
}

bool safetensors_name_is_valid(const char *name)
{
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    return name[0] != '\0' && utf8_is_valid(name, strlen(name));
}

void safetensors_table_free(struct mem *mem, struct safetensors_table *table)
{
    mem_free(mem, table->tensors);
    mem_free(mem, (void *)table->by_name);
    *table = (struct safetensors_table){0};
}

static int compare_names(const void *a, const void *b)
{
    const struct safetensors_tensor *const *left = a;
    const struct safetensors_tensor *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

enum der_status safetensors_table_index(struct der_ctx *ctx, const char *source,
                                        struct safetensors_table *table)
{
    size_t n = (size_t)table->n;
    const struct safetensors_tensor **by_name = mem_alloc(&ctx->mem, n, sizeof *by_name);
    if (!by_name)
        return ctx_nomem(ctx);
    for (size_t i = 0; i < n; i++)
        by_name[i] = &table->tensors[i];
    if (n > 0)
        qsort((void *)by_name, n, sizeof *by_name, compare_names);
    mem_free(&ctx->mem, (void *)table->by_name);
    table->by_name = by_name;
    for (size_t i = 1; i < n; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            return ctx_fail(ctx, DER_FORMAT, "%s: tensor " SAFETENSORS_NAME " is there twice",
                            source, by_name[i]->name);
    return DER_OK;
}

static int compare_name_to(const void *key, const void *entry)
{
    const struct safetensors_tensor *const *tensor = entry;
    return strcmp(key, (*tensor)->name);
}

const struct safetensors_tensor *safetensors_table_find(const struct safetensors_table *table,
                                                        const char *name)
{
    if (table->n == 0)
        return NULL;
    const struct safetensors_tensor *const *found =
        bsearch(name, (const void *)table->by_name, (size_t)table->n, sizeof *table->by_name,
                compare_name_to);
    return found ? *found : NULL;
}
