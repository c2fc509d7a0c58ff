#include "store/model_file.h"

#include "store/model_text.h"
#include "store/stored_extractor.h"
#include "store/tensor_list.h"

#include <stdio.h>

enum { PREFIX_CHARS = 32 };

static const char *prefix_of(int extractor, char prefix[PREFIX_CHARS])
{
    (void)snprintf(prefix, PREFIX_CHARS, "extractors.%d.", extractor);
    return prefix;
}

int64_t model_feature_dim(const struct model *model)
{
    int64_t dim = 0;
    for (int i = 0; i < model->n_extractors; i++)
        dim += resnet_feature_dim(&model->extractors[i]->spec);
    return dim;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static enum der_status write_tensors(const struct model *model, struct tensor_list *list,
                                     struct safetensors_writer *writer)
{
    char prefix[PREFIX_CHARS];
    for (int i = 0; i < model->n_extractors; i++)
        TRY(tensor_list_add_params(list, prefix_of(i, prefix), model->extractors[i]->params,
                                   false));
    TRY(tensor_list_add_params(list, "", model->classifier, false));
    TRY(text_describe(model->ctx, writer, text_from_model(model)));
    return tensor_list_write(list, writer);
}

enum der_status model_write(const struct model *model, const struct io_calls *io, const char *path)
{
    struct safetensors_writer *writer;
    struct tensor_list list;
    TRY(safetensors_writer_new(model->ctx, io, path, &writer));
    tensor_list_init(&list, model->ctx);
    enum der_status status = write_tensors(model, &list, writer);
    tensor_list_fini(&list);
    if (status != DER_OK) {
        safetensors_abort(writer);
        return status;
    }
    return safetensors_commit(writer);
}

/* ---- copying ------------------------------------------------------------------------------------- */

static enum der_status copy_texts(struct model *model)
{
    struct model_info *info = &model->info;
    char **classes = arena_zalloc(&model->texts, (size_t)info->n_classes, sizeof *classes);
    bool is_whole = classes != NULL;
    for (int i = 0; i < info->n_classes && is_whole; i++)
        is_whole = (classes[i] = arena_strdup(&model->texts, info->classes[i])) != NULL;
    const char **const texts[] = {&info->network, &info->version, &info->preset};
    for (int i = 0; i < 3 && is_whole; i++)
        is_whole = (*texts[i] = arena_strdup(&model->texts, *texts[i])) != NULL;
    info->classes = (const char *const *)classes;
    return is_whole ? DER_OK : ctx_nomem(model->ctx);
}

enum der_status model_new(const struct model *like, struct model **out)
{
    *out = NULL;
    struct model *model = mem_zalloc(&like->ctx->mem, 1, sizeof *model);
    if (!model)
        return ctx_nomem(like->ctx);
    model->ctx = like->ctx;
    model->info = like->info;
    arena_init(&model->texts, &like->ctx->mem);
    enum der_status status = copy_texts(model);
    if (status != DER_OK) {
        model_free(model);
        return status;
    }
    *out = model;
    return DER_OK;
}

static const char BIAS[] = "classifier.bias";

static enum der_status declare_classifier(struct model *model, int64_t feature_dim, bool has_bias)
{
    const int n_classes = model->info.n_classes;
    int index;
    TRY(param_set_new(model->ctx, &model->classifier));
    TRY(param_set_add(model->classifier, "classifier.weight", shape_2d(n_classes, feature_dim),
                      PARAM_LEARNT, INIT_ZERO, &index));
    if (!has_bias)
        return DER_OK;
    return param_set_add(model->classifier, BIAS, shape_1d(n_classes), PARAM_LEARNT, INIT_ZERO,
                         &index);
}

static enum der_status copy_tensors(const struct model *from, struct model *to)
{
    for (int i = 0; i < from->n_extractors; i++) {
        TRY(extractor_copy(from->extractors[i], &to->extractors[i]));
        to->n_extractors++;
    }
    TRY(declare_classifier(to, model_feature_dim(from), from->classifier->n > 1));
    TRY(param_set_allocate(to->classifier, from->classifier->be));
    return param_set_copy(to->classifier, from->classifier);
}

enum der_status model_copy(const struct model *model, struct model **out)
{
    struct model *copy;
    *out = NULL;
    TRY(model_new(model, &copy));
    enum der_status status = copy_tensors(model, copy);
    if (status != DER_OK) {
        model_free(copy);
        return status;
    }
    *out = copy;
    return DER_OK;
}

/* ---- loading ------------------------------------------------------------------------------------- */

static enum der_status load_extractor(struct model *model, struct backend *be, const char *source,
                                      struct safetensors_file *file, const struct resnet_spec *spec)
{
    char prefix[PREFIX_CHARS];
    int number = model->n_extractors;
    TRY(extractor_restore(be, source, file, prefix_of(number, prefix), spec,
                          &model->extractors[number]));
    model->n_extractors++;
    return DER_OK;
}

static enum der_status load_tensors(struct model *model, struct backend *be, const char *source,
                                    struct safetensors_file *file, const struct resnet_spec *specs,
                                    int n_specs)
{
    char prefix[PREFIX_CHARS];
    const bool has_bias = safetensors_find(file, BIAS) != NULL;
    int n_tensors = 0;
    int64_t feature_dim = 0;
    for (int i = 0; i < n_specs; i++) {
        TRY(extractor_is_stored(model->ctx, source, file, prefix_of(i, prefix), &specs[i],
                                &n_tensors));
        feature_dim += resnet_feature_dim(&specs[i]);
    }
    TRY(text_blame(model->ctx, source, declare_classifier(model, feature_dim, has_bias)));
    TRY(params_are_stored(file, "", model->classifier, false, &n_tensors));
    if (n_tensors != safetensors_count(file))
        return ctx_fail(model->ctx, DER_FORMAT,
                        "%s has %d tensors, but the model it describes has %d", source,
                        safetensors_count(file), n_tensors);
    TRY(param_set_allocate(model->classifier, be));
    TRY(params_restore(file, "", model->classifier, false));
    for (int i = 0; i < n_specs; i++)
        TRY(load_extractor(model, be, source, file, &specs[i]));
    return DER_OK;
}

static enum der_status load(struct model *model, struct backend *be, const char *path,
                            struct safetensors_file *file)
{
    struct resnet_spec *specs;
    int n_specs;
    cJSON *description;
    TRY(text_description(model->ctx, path, file, &description));
    enum der_status status = text_to_model(model->ctx, path, description, model, &specs, &n_specs);
    json_free(description);
    TRY(status);
    return load_tensors(model, be, path, file, specs, n_specs);
}

enum der_status model_load(struct backend *be, const struct io_calls *io, const char *path,
                           struct model **out)
{
    struct der_ctx *ctx = be->ctx;
    struct safetensors_file *file;
    *out = NULL;
    struct model *model = mem_zalloc(&ctx->mem, 1, sizeof *model);
    if (!model)
        return ctx_nomem(ctx);
    model->ctx = ctx;
    arena_init(&model->texts, &ctx->mem);
    enum der_status status = safetensors_open(ctx, io, path, &file);
    if (status == DER_OK)
        status = load(model, be, path, file);
    safetensors_close(file);
    if (status != DER_OK) {
        model_free(model);
        return status;
    }
    *out = model;
    return DER_OK;
}

void model_free(struct model *model)
{
    if (!model)
        return;
    for (int i = 0; i < model->n_extractors; i++)
        extractor_free(model->extractors[i]);
    param_set_free(model->classifier);
    arena_fini(&model->texts);
    mem_free(&model->ctx->mem, model);
}

enum der_status model_peek_steps(struct der_ctx *ctx, const struct io_calls *io, const char *path,
                                 int *n_steps)
{
    struct safetensors_file *file;
    cJSON *description = NULL;
    const cJSON *steps;
    *n_steps = 0;
    TRY(safetensors_open(ctx, io, path, &file));
    enum der_status status = text_description(ctx, path, file, &description);
    if (status == DER_OK)
        status = json_get_array(ctx, path, description, "steps", &steps);
    if (status == DER_OK)
        *n_steps = cJSON_GetArraySize(steps);
    json_free(description);
    safetensors_close(file);
    return status;
}
