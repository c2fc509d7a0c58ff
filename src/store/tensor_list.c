#include "store/tensor_list.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_CAPACITY = 64, NAME_MAX_CHARS = 256 };

#define VELOCITY_END ".velocity"

void tensor_list_init(struct tensor_list *list, struct der_ctx *ctx)
{
    *list = (struct tensor_list){.ctx = ctx};
    arena_init(&list->names, &ctx->mem);
}

void tensor_list_fini(struct tensor_list *list)
{
    if (!list->ctx)
        return;
    arena_fini(&list->names);
    mem_free(&list->ctx->mem, list->items);
    list->items = NULL;
    list->n = 0;
}

static enum der_status append(struct tensor_list *list, const struct tensor_source *source)
{
    struct der_ctx *ctx = list->ctx;
    if (list->n == list->capacity) {
        int capacity = list->capacity > 0 ? 2 * list->capacity : FIRST_CAPACITY;
        struct tensor_source *items =
            mem_realloc(&ctx->mem, list->items, (size_t)capacity, sizeof *items);
        if (!items)
            return ctx_nomem(ctx);
        list->items = items;
        list->capacity = capacity;
    }
    struct tensor_source copy = *source;
    copy.tensor.name = arena_strdup(&list->names, source->tensor.name);
    if (!copy.tensor.name)
        return ctx_nomem(ctx);
    list->items[list->n++] = copy;
    return DER_OK;
}

enum der_status tensor_list_add(struct tensor_list *list, const char *name,
                                enum safetensors_dtype dtype, int64_t rows, int64_t cols,
                                const void *data)
{
    struct tensor_source source = {
        .tensor = {.name = name, .dtype = dtype, .rank = cols < 0 ? 1 : 2, .dim = {rows, cols}},
        .host = data};
    return append(list, &source);
}

/* The tensor of a parameter as a file has it; `name` is the caller's space for its name. */
static struct safetensors_tensor stored(const char *prefix, const struct param *param,
                                        bool is_velocity, char name[NAME_MAX_CHARS])
{
    struct safetensors_tensor tensor = {
        .name = name, .dtype = SAFETENSORS_F32, .rank = param->shape.rank};
    (void)snprintf(name, NAME_MAX_CHARS, "%s%s%s", prefix, param->name,
                   is_velocity ? VELOCITY_END : "");
    for (int i = 0; i < tensor.rank; i++)
        tensor.dim[i] = param->shape.dim[i];
    return tensor;
}

/* Does anything move this parameter on? */
static bool has_velocity(const struct param_set *set, int index, bool moving)
{
    return moving && set->items[index].role == PARAM_LEARNT;
}

enum der_status tensor_list_add_params(struct tensor_list *list, const char *prefix,
                                       const struct param_set *set, bool moving)
{
    char name[NAME_MAX_CHARS];
    for (int i = 0; i < set->n; i++) {
        for (int v = 0; v <= has_velocity(set, i, moving); v++) {
            struct tensor_source source = {.tensor = stored(prefix, &set->items[i], v > 0, name),
                                           .set = set,
                                           .index = i,
                                           .is_velocity = v > 0};
            TRY(append(list, &source));
        }
    }
    return DER_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static const enum safetensors_dtype BY_WIDTH[] = {
    SAFETENSORS_F64, SAFETENSORS_I64,  SAFETENSORS_F32, SAFETENSORS_I32,
    SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_U8};
_Static_assert(sizeof BY_WIDTH / sizeof BY_WIDTH[0] == SAFETENSORS_DTYPES,
               "every type has a place");

static enum der_status put_param(const struct tensor_source *source,
                                 struct safetensors_writer *writer)
{
    const struct param_set *set = source->set;
    size_t count = (size_t)shape_count(set->items[source->index].shape);
    float *host = mem_alloc(&set->ctx->mem, count, sizeof *host);
    if (!host)
        return ctx_nomem(set->ctx);
    enum der_status status = source->is_velocity ? param_read_velocity(set, source->index, host)
                                                 : param_read(set, source->index, host);
    if (status == DER_OK)
        status = safetensors_put(writer, source->tensor.name, host, count * sizeof *host);
    mem_free(&set->ctx->mem, host);
    return status;
}

static enum der_status put(const struct tensor_source *source, struct safetensors_writer *writer)
{
    size_t size = 0;
    if (source->set)
        return put_param(source, writer);
    (void)safetensors_size(&source->tensor, &size); /* checked when it was declared */
    return safetensors_put(writer, source->tensor.name, source->host, size);
}

enum der_status tensor_list_write(const struct tensor_list *list, struct safetensors_writer *writer)
{
    for (int w = 0; w < SAFETENSORS_DTYPES; w++)
        for (int i = 0; i < list->n; i++)
            if (list->items[i].tensor.dtype == BY_WIDTH[w])
                TRY(safetensors_declare(writer, &list->items[i].tensor));
    for (int w = 0; w < SAFETENSORS_DTYPES; w++)
        for (int i = 0; i < list->n; i++)
            if (list->items[i].tensor.dtype == BY_WIDTH[w])
                TRY(put(&list->items[i], writer));
    return DER_OK;
}

/* ---- reading ------------------------------------------------------------------------------------- */

enum der_status params_are_stored(struct safetensors_file *file, const char *prefix,
                                  const struct param_set *set, bool moving, int *n)
{
    char name[NAME_MAX_CHARS];
    for (int i = 0; i < set->n; i++) {
        for (int v = 0; v <= has_velocity(set, i, moving); v++) {
            struct safetensors_tensor wanted = stored(prefix, &set->items[i], v > 0, name);
            TRY(safetensors_check(file, &wanted));
            if (n)
                ++*n;
        }
    }
    return DER_OK;
}

static enum der_status restore_one(struct safetensors_file *file,
                                   const struct safetensors_tensor *wanted, struct param_set *set,
                                   int index, bool is_velocity)
{
    size_t count = (size_t)shape_count(set->items[index].shape);
    float *host = mem_alloc(&set->ctx->mem, count, sizeof *host);
    if (!host)
        return ctx_nomem(set->ctx);
    enum der_status status = safetensors_read(file, wanted, SAFETENSORS_FINITE, host);
    if (status == DER_OK)
        status =
            is_velocity ? param_write_velocity(set, index, host) : param_write(set, index, host);
    mem_free(&set->ctx->mem, host);
    return status;
}

enum der_status params_restore(struct safetensors_file *file, const char *prefix,
                               struct param_set *set, bool moving)
{
    char name[NAME_MAX_CHARS];
    for (int i = 0; i < set->n; i++) {
        for (int v = 0; v <= has_velocity(set, i, moving); v++) {
            struct safetensors_tensor wanted = stored(prefix, &set->items[i], v > 0, name);
            TRY(restore_one(file, &wanted, set, i, v > 0));
        }
    }
    return DER_OK;
}

enum der_status params_check_variances(const struct param_set *set, const char *source,
                                       const char *prefix)
{
    struct mem *mem = &set->ctx->mem;
    for (int i = LAYER_VAR; i < set->n; i += PARAMS_PER_LAYER) {
        int64_t n = shape_count(set->items[i].shape);
        float *values = mem_alloc(mem, (size_t)n, sizeof *values);
        enum der_status status = values ? param_read(set, i, values) : ctx_nomem(set->ctx);
        for (int64_t c = 0; c < n && status == DER_OK; c++)
            if (values[c] < 0.0f)
                status =
                    ctx_fail(set->ctx, DER_FORMAT, "%s: tensor '%s%s' holds a negative variance",
                             source, prefix, set->items[i].name);
        mem_free(mem, values);
        TRY(status);
    }
    return DER_OK;
}
