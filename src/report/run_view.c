#include "report/run_view.h"

#include "core/file.h"
#include "experiment/run_files.h"
#include "json/maker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH_PROBE = 224 }; /* an image size that every network accepts */

/* ---- reading --------------------------------------------------------------------------------------- */

static enum der_status check_there(const struct run_view *run)
{
    if (run->outcome.state != RUN_ABSENT)
        return DER_OK;
    bool is_there = access(run->path, F_OK) == 0;
    return ctx_fail(run->ctx, DER_IO,
                    is_there ? "%s is empty: no run has begun there" : "%s is not there",
                    run->path);
}

/* The file, whole; one that is not there is empty. */
static enum der_status read_metrics(struct run_view *run, const char *path)
{
    struct der_ctx *ctx = run->ctx;
    struct file_bytes bytes = {0};
    struct fault fault;
    if (access(path, F_OK) != 0)
        return history_read(ctx, path, "", 0, run->outcome.n_classes, &run->history);
    enum der_status status = file_read(&ctx->mem, NULL, path, JSON_MAX_BYTES, &bytes, &fault);
    if (status != DER_OK)
        return ctx_fail(ctx, status, "%s", fault.text);
    const char *text = (const char *)bytes.data;
    /* Once more over what was read now, which may be more than run_read met. */
    status = run_read_metrics(ctx, path, text, bytes.size, &run->outcome);
    if (status == DER_OK)
        status = history_read(ctx, path, text, bytes.size, run->outcome.n_classes, &run->history);
    file_bytes_free(&ctx->mem, &bytes);
    return status;
}

static enum der_status read_predictions(struct run_view *run, const char *path)
{
    if (access(path, F_OK) != 0)
        return DER_OK;
    TRY(prediction_file_read(run->ctx, NULL, path, &run->predictions));
    if (run->predictions->n_classes > run->outcome.n_classes)
        return ctx_fail(run->ctx, DER_FORMAT, "%s has %d classes, its run %d", path,
                        run->predictions->n_classes, run->outcome.n_classes);
    return DER_OK;
}

static enum der_status read_exemplars(struct run_view *run, const char *path)
{
    if (access(path, F_OK) != 0)
        return DER_OK;
    return exemplar_file_read(run->ctx, NULL, path, run->outcome.n_classes,
                              run->outcome.train_images, &run->exemplars);
}

/* FOLDER/name through one of the above. */
static enum der_status read_part(struct run_view *run, const char *name,
                                 enum der_status (*read)(struct run_view *, const char *))
{
    char *path = run_files_join(run->ctx, run->path, name);
    if (!path)
        return ctx_nomem(run->ctx);
    enum der_status status = read(run, path);
    mem_free(&run->ctx->mem, path);
    return status;
}

static enum der_status check_names(const struct run_view *run)
{
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(run->record.root, "class_names");
    const cJSON *name;
    int n = 0;
    cJSON_ArrayForEach(name, names) n += cJSON_IsString(name);
    if (!cJSON_IsArray(names) || n != run->outcome.n_classes || n != cJSON_GetArraySize(names))
        return ctx_fail(run->ctx, DER_FORMAT, "%s/config.json: 'class_names' must be %d names",
                        run->path, run->outcome.n_classes);
    return DER_OK;
}

enum der_status run_view_read(struct der_ctx *ctx, const char *path, struct run_view *out)
{
    *out = (struct run_view){.ctx = ctx, .path = path, .name = path};
    TRY(run_read(ctx, path, &out->outcome));
    TRY(check_there(out));
    TRY(run_record_read(ctx, path, &out->record));
    TRY(check_names(out));
    TRY(read_part(out, "metrics.jsonl", read_metrics));
    TRY(read_part(out, "predictions.safetensors", read_predictions));
    return read_part(out, "exemplars.safetensors", read_exemplars);
}

void run_view_fini(struct run_view *run)
{
    run_record_fini(&run->record);
    history_fini(&run->history);
    prediction_file_free(run->predictions);
    exemplar_file_free(run->exemplars);
    *run = (struct run_view){0};
}

int run_view_first_class(const struct run_view *run, int step)
{
    int first = 0;
    for (int t = 0; t < step; t++)
        first += config_step_classes(&run->outcome.config, run->outcome.n_classes, t);
    return first;
}

/* ---- as JSON --------------------------------------------------------------------------------------- */

/* First classes of the groups, and the end of the last one. */
static cJSON *bounds(const struct run_view *run)
{
    int n = run_steps(&run->outcome);
    cJSON *array = cJSON_CreateArray();
    for (int t = 0; t <= n; t++)
        if (!append_item(array, cJSON_CreateNumber(run_view_first_class(run, t)))) {
            cJSON_Delete(array);
            return NULL;
        }
    return array;
}

/* Channels of the unpruned network, as steps tell those of the pruned one. */
static cJSON *full_widths(const struct run_view *run)
{
    const struct config *config = &run->outcome.config;
    struct resnet_spec spec;
    if (resnet_spec_init(run->ctx, &spec, config->network, 3, WIDTH_PROBE, WIDTH_PROBE,
                         config->width) != DER_OK)
        return cJSON_CreateNull();
    int inner[RESNET_MAX_STAGES * RESNET_MAX_BLOCKS];
    int n = 0;
    for (int k = 0; k < spec.n_stages; k++)
        for (int b = 0; b < spec.n_blocks[k]; b++)
            inner[n++] = spec.inner[k][b];
    struct maker m = maker_new();
    add_item(&m, "stream", cJSON_CreateIntArray(spec.stream, spec.n_stages));
    add_item(&m, "inner", cJSON_CreateIntArray(inner, n));
    add_item(&m, "blocks", cJSON_CreateIntArray(spec.n_blocks, spec.n_stages));
    return maker_done(&m);
}

static int compare_pairs(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sparse counts: label, guess, count, one triple after the other. pairs [n] is sorted, label * classes + guess. */
static cJSON *count_pairs(const int64_t *pairs, int64_t n, int n_classes)
{
    cJSON *cells = cJSON_CreateArray();
    bool is_whole = cells != NULL;
    for (int64_t i = 0; i < n && is_whole;) {
        int64_t end = i + 1;
        while (end < n && pairs[end] == pairs[i])
            end++;
        is_whole = append_item(cells, cJSON_CreateNumber((double)(pairs[i] / n_classes))) &&
                   append_item(cells, cJSON_CreateNumber((double)(pairs[i] % n_classes))) &&
                   append_item(cells, cJSON_CreateNumber((double)(end - i)));
        i = end;
    }
    if (is_whole)
        return cells;
    cJSON_Delete(cells);
    return NULL;
}

static cJSON *class_confusion(const struct run_view *run)
{
    const struct prediction_file *file = run->predictions;
    struct mem *mem = &run->ctx->mem;
    if (!file)
        return cJSON_CreateNull();
    int64_t *pairs = mem_alloc(mem, (size_t)file->n, sizeof *pairs);
    if (!pairs)
        return NULL;
    for (int64_t i = 0; i < file->n; i++)
        pairs[i] =
            (int64_t)file->predictions[i].label * file->n_classes + file->predictions[i].guess;
    qsort(pairs, (size_t)file->n, sizeof *pairs, compare_pairs);
    struct maker m = maker_new();
    add_number(&m, "classes", file->n_classes);
    add_item(&m, "cells", count_pairs(pairs, file->n, file->n_classes));
    mem_free(mem, pairs);
    return maker_done(&m);
}

static cJSON *copy_of(const cJSON *value)
{
    return value ? cJSON_Duplicate(value, true) : cJSON_CreateNull();
}

cJSON *run_view_json(const struct run_view *run, cJSON *images)
{
    const struct config *config = &run->outcome.config;
    const struct run_record *record = &run->record;
    struct maker m = maker_new();
    add_text(&m, "name", run->name);
    add_text(&m, "path", run->path);
    add_text(&m, "preset", config->preset);
    add_bool(&m, "done", run->outcome.has_ended);
    add_bool(&m, "expands", config->expand && config->method == METHOD_DER);
    add_number(&m, "n_steps", run_steps(&run->outcome));
    add_number(&m, "train_images", (double)run->outcome.train_images);
    add_number(&m, "test_images", (double)run->outcome.test_images);
    add_text(&m, "data", record->data);
    add_text(&m, "data_kind", run->outcome.data_kind);
    add_text(&m, "device", record->device);
    add_text(&m, "precision", record->precision);
    add_number(&m, "threads", record->threads);
    add_text(&m, "version", record->version);
    add_item(&m, "classes", copy_of(cJSON_GetObjectItemCaseSensitive(record->root, "class_names")));
    add_item(&m, "bounds", bounds(run));
    add_item(&m, "full", full_widths(run));
    add_item(&m, "steps", copy_of(run->history.steps));
    add_item(&m, "epochs", copy_of(run->history.epochs));
    add_item(&m, "end", copy_of(run->history.end));
    add_item(&m, "confusion", class_confusion(run));
    add_item(&m, "images", images);
    return maker_done(&m);
}
