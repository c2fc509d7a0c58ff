#include "store/exemplar_file.h"

#include "store/model_text.h"
#include "store/tensor_list.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ------------------------------------------------------------------------------------- */

/* counts [n_classes], then the samples of all classes one after the other; caller frees. */
static enum der_status gather(const struct exemplars *memory, int64_t **numbers, int64_t *n_samples)
{
    size_t n_classes = (size_t)memory->n_classes;
    *n_samples = 0;
    for (size_t k = 0; k < n_classes; k++)
        *n_samples += memory->lists[k].n;
    *numbers = mem_alloc(&memory->ctx->mem, n_classes + (size_t)*n_samples, sizeof **numbers);
    if (!*numbers)
        return ctx_nomem(memory->ctx);
    int64_t *next = *numbers + n_classes;
    for (size_t k = 0; k < n_classes; k++) {
        const struct exemplar_list *list = &memory->lists[k];
        (*numbers)[k] = list->n;
        for (int i = 0; i < list->n; i++)
            *next++ = list->samples[i];
    }
    return DER_OK;
}

static enum der_status write_lists(const struct exemplars *memory,
                                   struct safetensors_writer *writer)
{
    struct tensor_list list;
    int64_t *numbers;
    int64_t n_samples;
    int n = memory->n_classes;
    TRY(gather(memory, &numbers, &n_samples));
    tensor_list_init(&list, memory->ctx);
    enum der_status status = tensor_list_add(&list, "counts", SAFETENSORS_I64, n, -1, numbers);
    if (status == DER_OK)
        status = tensor_list_add(&list, "samples", SAFETENSORS_I64, n_samples, -1, numbers + n);
    if (status == DER_OK)
        status = tensor_list_write(&list, writer);
    tensor_list_fini(&list);
    mem_free(&memory->ctx->mem, numbers);
    return status;
}

enum der_status exemplar_file_write(const struct exemplars *memory, const char *const *classes,
                                    int step, const struct io_calls *io, const char *path)
{
    struct safetensors_writer *writer;
    TRY(safetensors_writer_new(memory->ctx, io, path, &writer));
    enum der_status status =
        text_describe(memory->ctx, writer, text_from_names(classes, memory->n_classes, step));
    if (status == DER_OK)
        status = write_lists(memory, writer);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status get_text(struct exemplar_file *e, const char *path,
                                const struct safetensors_file *file, int *n_classes)
{
    static const char *const keys[] = {"format", "step", "classes", NULL};
    struct der_ctx *ctx = e->ctx;
    cJSON *object;
    const cJSON *names;
    int64_t step = 0;
    TRY(text_description(ctx, path, file, &object));
    enum der_status status = text_members(ctx, path, object, keys);
    if (status == DER_OK)
        status = json_get_int(ctx, path, object, "step", 1, MODEL_MAX_STEPS, &step);
    if (status == DER_OK)
        status = json_get_array(ctx, path, object, "classes", &names);
    if (status == DER_OK)
        status = text_names(ctx, path, names, 0, &e->texts, &e->classes, n_classes);
    e->step = (int)step;
    json_free(object);
    return status;
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Within the split, and none twice. */
static enum der_status check_samples(struct der_ctx *ctx, const char *path, const int64_t *samples,
                                     int64_t n, int64_t n_samples)
{
    int64_t *sorted = mem_alloc(&ctx->mem, (size_t)n, sizeof *sorted);
    enum der_status status = DER_OK;
    if (!sorted)
        return ctx_nomem(ctx);
    if (n > 0)
        memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_numbers);
    if (n > 0 && (sorted[0] < 0 || sorted[n - 1] >= n_samples))
        status =
            ctx_fail(ctx, DER_FORMAT,
                     "%s: sample %lld does not exist; the data set has %lld training images", path,
                     (long long)(sorted[0] < 0 ? sorted[0] : sorted[n - 1]), (long long)n_samples);
    for (int64_t i = 1; i < n && status == DER_OK; i++)
        if (sorted[i] == sorted[i - 1])
            status = ctx_fail(ctx, DER_FORMAT, "%s: sample %lld occurs twice", path,
                              (long long)sorted[i]);
    mem_free(&ctx->mem, sorted);
    return status;
}

/* Cuts the samples into lists as the counts say. */
static enum der_status fill(struct exemplar_file *e, const char *path, const int64_t *counts,
                            int64_t n_counts, const int64_t *samples, int64_t n)
{
    int64_t used = 0;
    for (int64_t k = 0; k < n_counts; k++) {
        if (counts[k] < 0 || counts[k] > n - used || counts[k] > INT32_MAX)
            return ctx_fail(e->ctx, DER_FORMAT, "%s: class %lld cannot have %lld of %lld samples",
                            path, (long long)k + 1, (long long)counts[k], (long long)n);
        TRY(exemplars_add(e->memory, samples + used, (int)counts[k]));
        used += counts[k];
    }
    if (used != n)
        return ctx_fail(e->ctx, DER_FORMAT, "%s: %lld samples, but the counts add up to %lld", path,
                        (long long)n, (long long)used);
    return DER_OK;
}

static enum der_status read_file(struct exemplar_file *e, const char *path,
                                 struct safetensors_file *file, int capacity, int64_t n_samples)
{
    struct der_ctx *ctx = e->ctx;
    void *counts = NULL;
    void *samples = NULL;
    int64_t n_counts = 0;
    int64_t n = 0;
    int n_classes = 0;
    TRY(get_text(e, path, file, &n_classes));
    if (safetensors_count(file) != 2)
        return ctx_fail(ctx, DER_FORMAT, "%s has %d tensors, want 'counts' and 'samples'", path,
                        safetensors_count(file));
    enum der_status status =
        text_read_vector(ctx, path, file, "counts", SAFETENSORS_I64, &counts, &n_counts);
    if (status == DER_OK)
        status = text_read_vector(ctx, path, file, "samples", SAFETENSORS_I64, &samples, &n);
    if (status == DER_OK && (n_counts != n_classes || n_classes > capacity))
        status = ctx_fail(ctx, DER_FORMAT, "%s: %lld counts for %d classes; there can be %d", path,
                          (long long)n_counts, n_classes, capacity);
    if (status == DER_OK)
        status = check_samples(ctx, path, samples, n, n_samples);
    if (status == DER_OK)
        status = exemplars_new(ctx, capacity, &e->memory);
    if (status == DER_OK)
        status = fill(e, path, counts, n_counts, samples, n);
    mem_free(&ctx->mem, counts);
    mem_free(&ctx->mem, samples);
    return status;
}

enum der_status exemplar_file_read(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                   int capacity, int64_t n_samples, struct exemplar_file **out)
{
    struct safetensors_file *file;
    *out = NULL;
    struct exemplar_file *e = mem_zalloc(&ctx->mem, 1, sizeof *e);
    if (!e)
        return ctx_nomem(ctx);
    e->ctx = ctx;
    arena_init(&e->texts, &ctx->mem);
    enum der_status status = safetensors_open(ctx, io, path, &file);
    if (status == DER_OK)
        status = read_file(e, path, file, capacity, n_samples);
    safetensors_close(file);
    if (status != DER_OK) {
        exemplar_file_free(e);
        return status;
    }
    *out = e;
    return DER_OK;
}

void exemplar_file_free(struct exemplar_file *file)
{
    if (!file)
        return;
    exemplars_free(file->memory);
    arena_fini(&file->texts);
    mem_free(&file->ctx->mem, file);
}
