/*
 * Fuzz target: a model file is refused with a sentence, or what it describes is there: networks of its widths,
 * a classifier of their features, and an input that the transforms accept.
 */
#include "fuzz_file.h"
#include "store/model_file.h"

static void check_model(struct der_ctx *ctx, const struct model *model)
{
    const struct model_info *info = &model->info;
    struct augment augment;
    int n_classes = 0;
    for (int t = 0; t < info->n_steps; t++)
        n_classes += info->steps[t];
    require(n_classes == info->n_classes && model->n_extractors >= 1 && info->temperature > 0.0);
    require(model->classifier->items[0].shape.dim[0] == n_classes);
    require(model->classifier->items[0].shape.dim[1] == model_feature_dim(model));
    for (int i = 0; i < model->n_extractors; i++)
        require(resnet_spec_check(ctx, &model->extractors[i]->spec) == DER_OK);
    require(augment_init(ctx, &info->input, &augment) == DER_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct der_ctx *ctx = input_ctx();
    struct backend *be;
    struct model *model;
    struct input input = {.data = data, .size = size};
    const struct io_calls io = input_calls(&input);
    require(backend_open(ctx, "ref", NULL, &be) == DER_OK);
    enum der_status status = model_load(be, &io, "fuzz", &model);
    if (status == DER_OK)
        check_model(ctx, model);
    else
        check_refusal(ctx, status);
    model_free(model);
    backend_close(be);
    input_end(ctx, &input);
    return 0;
}
