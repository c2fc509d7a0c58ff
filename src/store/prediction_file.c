#include "store/prediction_file.h"

#include "store/model_text.h"
#include "store/tensor_list.h"

#include <string.h>

static const char *const SPLITS[DATA_SPLITS] = {[DATA_TRAIN] = "train", [DATA_TEST] = "test"};

/* One array per tensor. */
struct columns {
    int64_t *samples;
    float *confidence;
    int32_t *labels, *guesses;
    int64_t n; /* of each */
};

static void columns_fini(struct der_ctx *ctx, struct columns *c)
{
    mem_free(&ctx->mem, c->samples);
    mem_free(&ctx->mem, c->confidence);
    mem_free(&ctx->mem, c->labels);
    mem_free(&ctx->mem, c->guesses);
}

/* ---- writing ------------------------------------------------------------------------------------- */

static enum der_status to_columns(const struct prediction_file *file, struct columns *c)
{
    struct mem *mem = &file->ctx->mem;
    size_t n = (size_t)file->n;
    *c = (struct columns){.samples = mem_alloc(mem, n, sizeof *c->samples),
                          .confidence = mem_alloc(mem, n, sizeof *c->confidence),
                          .labels = mem_alloc(mem, n, sizeof *c->labels),
                          .guesses = mem_alloc(mem, n, sizeof *c->guesses),
                          .n = file->n};
    if (!c->samples || !c->confidence || !c->labels || !c->guesses)
        return ctx_nomem(file->ctx);
    for (size_t i = 0; i < n; i++) {
        const struct prediction *p = &file->predictions[i];
        c->samples[i] = p->sample;
        c->confidence[i] = p->confidence;
        c->labels[i] = p->label;
        c->guesses[i] = p->guess;
    }
    return DER_OK;
}

static enum der_status add_columns(struct tensor_list *list, const struct columns *c)
{
    TRY(tensor_list_add(list, "samples", SAFETENSORS_I64, c->n, -1, c->samples));
    TRY(tensor_list_add(list, "confidence", SAFETENSORS_F32, c->n, -1, c->confidence));
    TRY(tensor_list_add(list, "labels", SAFETENSORS_I32, c->n, -1, c->labels));
    return tensor_list_add(list, "guesses", SAFETENSORS_I32, c->n, -1, c->guesses);
}

static enum der_status write_columns(const struct prediction_file *file,
                                     struct safetensors_writer *writer)
{
    struct tensor_list list;
    struct columns columns;
    tensor_list_init(&list, file->ctx);
    enum der_status status = to_columns(file, &columns);
    if (status == DER_OK)
        status = add_columns(&list, &columns);
    if (status == DER_OK)
        status = tensor_list_write(&list, writer);
    tensor_list_fini(&list);
    columns_fini(file->ctx, &columns);
    return status;
}

static cJSON *make_text(const struct prediction_file *file)
{
    cJSON *object = text_from_names(file->classes, file->n_classes, file->step);
    if (object && cJSON_AddStringToObject(object, "split", SPLITS[file->split]))
        return object;
    cJSON_Delete(object);
    return NULL;
}

enum der_status prediction_file_write(const struct prediction_file *file, const struct io_calls *io,
                                      const char *path)
{
    struct safetensors_writer *writer;
    TRY(safetensors_writer_new(file->ctx, io, path, &writer));
    enum der_status status = text_describe(file->ctx, writer, make_text(file));
    if (status == DER_OK)
        status = write_columns(file, writer);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static enum der_status get_split(struct prediction_file *file, const char *path,
                                 const cJSON *object)
{
    const char *text;
    TRY(json_get_text(file->ctx, path, object, "split", &text));
    for (int i = 0; i < DATA_SPLITS; i++) {
        if (strcmp(text, SPLITS[i]) == 0) {
            file->split = (enum data_split)i;
            return DER_OK;
        }
    }
    return ctx_fail(file->ctx, DER_FORMAT, "%s: 'split' must be train or test, not '%.60s'", path,
                    text);
}

static enum der_status get_members(struct prediction_file *file, const char *path,
                                   const cJSON *object)
{
    static const char *const keys[] = {"format", "step", "classes", "split", NULL};
    const cJSON *names;
    int64_t step = 0;
    TRY(text_members(file->ctx, path, object, keys));
    TRY(json_get_int(file->ctx, path, object, "step", 1, MODEL_MAX_STEPS, &step));
    file->step = (int)step;
    TRY(get_split(file, path, object));
    TRY(json_get_array(file->ctx, path, object, "classes", &names));
    return text_names(file->ctx, path, names, 1, &file->texts, &file->classes, &file->n_classes);
}

static enum der_status get_text(struct prediction_file *file, const char *path,
                                const struct safetensors_file *tensors)
{
    cJSON *object;
    TRY(text_description(file->ctx, path, tensors, &object));
    enum der_status status = get_members(file, path, object);
    json_free(object);
    return status;
}

/* A column, as long as those before it. */
static enum der_status read_column(struct der_ctx *ctx, const char *path,
                                   struct safetensors_file *tensors, const char *name,
                                   enum safetensors_dtype dtype, struct columns *c, void **values)
{
    int64_t n;
    TRY(text_read_vector(ctx, path, tensors, name, dtype, values, &n));
    if (c->n >= 0 && n != c->n)
        return ctx_fail(ctx, DER_FORMAT, "%s: '%s' has %lld numbers, not %lld like the others",
                        path, name, (long long)n, (long long)c->n);
    c->n = n;
    return DER_OK;
}

static enum der_status read_columns(struct der_ctx *ctx, const char *path,
                                    struct safetensors_file *tensors, struct columns *c)
{
    void *column[4] = {NULL};
    *c = (struct columns){.n = -1};
    if (safetensors_count(tensors) != 4)
        return ctx_fail(ctx, DER_FORMAT, "%s has %d tensors, want 4", path,
                        safetensors_count(tensors));
    enum der_status status =
        read_column(ctx, path, tensors, "samples", SAFETENSORS_I64, c, &column[0]);
    if (status == DER_OK)
        status = read_column(ctx, path, tensors, "confidence", SAFETENSORS_F32, c, &column[1]);
    if (status == DER_OK)
        status = read_column(ctx, path, tensors, "labels", SAFETENSORS_I32, c, &column[2]);
    if (status == DER_OK)
        status = read_column(ctx, path, tensors, "guesses", SAFETENSORS_I32, c, &column[3]);
    c->samples = column[0];
    c->confidence = column[1];
    c->labels = column[2];
    c->guesses = column[3];
    return status;
}

static enum der_status check_row(const struct prediction_file *file, const char *path,
                                 const struct prediction *p, int64_t row)
{
    struct der_ctx *ctx = file->ctx;
    if (p->sample < 0)
        return ctx_fail(ctx, DER_FORMAT, "%s: image %lld has position %lld", path, (long long)row,
                        (long long)p->sample);
    if (p->label < 0 || p->label >= file->n_classes || p->guess < 0 || p->guess >= file->n_classes)
        return ctx_fail(ctx, DER_FORMAT, "%s: image %lld: class %d or %d is not one of %d", path,
                        (long long)row, (int)p->label, (int)p->guess, file->n_classes);
    if (p->confidence < 0.0F || p->confidence > 1.0F)
        return ctx_fail(ctx, DER_FORMAT, "%s: image %lld: %g is no probability", path,
                        (long long)row, (double)p->confidence);
    return DER_OK;
}

static enum der_status from_columns(struct prediction_file *file, const char *path,
                                    const struct columns *c)
{
    file->predictions = mem_alloc(&file->ctx->mem, (size_t)c->n, sizeof *file->predictions);
    if (!file->predictions)
        return ctx_nomem(file->ctx);
    file->n = c->n;
    for (int64_t i = 0; i < c->n; i++) {
        struct prediction *p = &file->predictions[i];
        *p = (struct prediction){.sample = c->samples[i],
                                 .label = c->labels[i],
                                 .guess = c->guesses[i],
                                 .confidence = c->confidence[i]};
        TRY(check_row(file, path, p, i));
    }
    return DER_OK;
}

static enum der_status read_file(struct prediction_file *file, const char *path,
                                 struct safetensors_file *tensors)
{
    struct columns columns;
    TRY(get_text(file, path, tensors));
    enum der_status status = read_columns(file->ctx, path, tensors, &columns);
    if (status == DER_OK)
        status = from_columns(file, path, &columns);
    columns_fini(file->ctx, &columns);
    return status;
}

enum der_status prediction_file_read(struct der_ctx *ctx, const struct io_calls *io,
                                     const char *path, struct prediction_file **out)
{
    struct safetensors_file *tensors;
    *out = NULL;
    struct prediction_file *file = mem_zalloc(&ctx->mem, 1, sizeof *file);
    if (!file)
        return ctx_nomem(ctx);
    file->ctx = ctx;
    arena_init(&file->texts, &ctx->mem);
    enum der_status status = safetensors_open(ctx, io, path, &tensors);
    if (status == DER_OK)
        status = read_file(file, path, tensors);
    safetensors_close(tensors);
    if (status != DER_OK) {
        prediction_file_free(file);
        return status;
    }
    *out = file;
    return DER_OK;
}

void prediction_file_free(struct prediction_file *file)
{
    if (!file)
        return;
    mem_free(&file->ctx->mem, file->predictions);
    arena_fini(&file->texts);
    mem_free(&file->ctx->mem, file);
}
