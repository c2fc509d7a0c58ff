/*
 * A model file as ten steps of DER leave it: ten ResNet-18 for small images, each pruned to widths of its
 * own, and a classifier over 100 classes. Weights are drawn, since times do not depend on them; batch norms
 * have statistics that matter, so that whoever folds them wrongly is found out.
 */
#include "bench.h"

#include "core/rng.h"
#include "store/model_file.h"

#include <der/version.h>
#include <stdio.h>

enum { MODEL_CLASSES = 100, CLASS_NAME_CHARS = 16, RANGE_STREAM = 1000 };

/* Channels that pruning leaves of a layer, as a share: the sparsity loss counts weights, so the wide late
 * layers lose most. */
static const double LEAST[RESNET_MAX_STAGES] = {0.40, 0.35, 0.22, 0.12};
static const double MOST[RESNET_MAX_STAGES] = {0.80, 0.65, 0.42, 0.30};

static int kept_channels(uint64_t seed, int extractor, int layer, int stage, int channels)
{
    struct rng_block block = rng_at(seed, RNG_TEST, (uint32_t)extractor, (uint64_t)layer);
    double share = LEAST[stage] + (MOST[stage] - LEAST[stage]) * (double)rng_unit(block.word[0]);
    int kept = (int)(share * channels);
    return kept < 1 ? 1 : kept;
}

static void prune_spec(struct resnet_spec *spec, uint64_t seed, int extractor)
{
    int layer = 0;
    for (int k = 0; k < spec->n_stages; k++) {
        spec->stream[k] = kept_channels(seed, extractor, layer++, k, spec->stream[k]);
        for (int b = 0; b < spec->n_blocks[k]; b++)
            spec->inner[k][b] = kept_channels(seed, extractor, layer++, k, spec->inner[k][b]);
    }
}

/* Batch norms as training leaves them: no parameter where initialisation puts it. */
static enum der_status draw_norms(struct param_set *set, uint64_t seed, int extractor)
{
    static const double low[PARAMS_PER_LAYER] = {0.0, 0.6, -0.2, -0.2, 0.5};
    static const double high[PARAMS_PER_LAYER] = {0.0, 1.0, 0.2, 0.2, 1.5};
    float values[BENCH_MAX_CHANNELS];
    for (int i = 0; i < set->n; i++) {
        int kind = i % PARAMS_PER_LAYER;
        if (kind == LAYER_WEIGHT)
            continue;
        rng_uniform(values, shape_count(set->items[i].shape), low[kind], high[kind], seed, RNG_TEST,
                    (uint32_t)(RANGE_STREAM * (extractor + 1) + i));
        TRY(param_write(set, i, values));
    }
    return DER_OK;
}

static enum der_status add_extractor(struct model *model, struct backend *be,
                                     const struct resnet_spec *full)
{
    struct resnet_spec spec = *full;
    int number = model->n_extractors;
    uint64_t seed = model->info.seed;
    prune_spec(&spec, seed, number);
    TRY(extractor_new(be, &spec, &model->extractors[number]));
    model->n_extractors++;
    TRY(param_set_init(model->extractors[number]->params, seed, (uint32_t)number));
    return draw_norms(model->extractors[number]->params, seed, number);
}

static enum der_status name_classes(struct model *model)
{
    const char **names = arena_zalloc(&model->texts, MODEL_CLASSES, sizeof *names);
    if (!names)
        return ctx_nomem(model->ctx);
    for (int i = 0; i < MODEL_CLASSES; i++) {
        char name[CLASS_NAME_CHARS];
        (void)snprintf(name, sizeof name, "class %d", i);
        names[i] = arena_strdup(&model->texts, name);
        if (!names[i])
            return ctx_nomem(model->ctx);
    }
    model->info.classes = names;
    model->info.n_classes = MODEL_CLASSES;
    return DER_OK;
}

static enum der_status build(struct model *model, struct backend *be,
                             const struct bench_options *options)
{
    struct model_info *info = &model->info;
    struct resnet_spec spec;
    int index;
    TRY(resnet_spec_init(model->ctx, &spec, options->model, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE,
                         options->width));
    *info = (struct model_info){.n_steps = options->n_extractors,
                                .input = *augment_preset("cifar100-test"),
                                .network = options->model,
                                .width = options->width,
                                .temperature = 5.0,
                                .version = der_version(),
                                .preset = "",
                                .seed = model->ctx->seed};
    for (int i = 0; i < info->n_steps; i++) {
        info->steps[i] =
            MODEL_CLASSES * (i + 1) / info->n_steps - MODEL_CLASSES * i / info->n_steps;
        TRY(add_extractor(model, be, &spec));
    }
    TRY(name_classes(model));
    TRY(param_set_new(model->ctx, &model->classifier));
    TRY(param_set_add(model->classifier, "classifier.weight",
                      shape_2d(MODEL_CLASSES, model_feature_dim(model)), PARAM_LEARNT,
                      INIT_LINEAR_UNIFORM, &index));
    TRY(param_set_allocate(model->classifier, be));
    return param_set_init(model->classifier, info->seed, MODEL_MAX_STEPS);
}

enum der_status bench_model(struct der_ctx *ctx, const struct bench_options *options)
{
    struct backend *be;
    struct model model = {.ctx = ctx};
    if (!options->file || options->n_extractors < 1 || options->n_extractors > MODEL_CLASSES)
        return ctx_fail(ctx, DER_ARG, "model wants --file, and 1 to %d extractors", MODEL_CLASSES);
    TRY(backend_open(ctx, options->backend, NULL, &be));
    arena_init(&model.texts, &ctx->mem);
    enum der_status status = build(&model, be, options);
    if (status == DER_OK)
        status = model_write(&model, NULL, options->file);
    for (int i = 0; i < model.n_extractors; i++) {
        printf("%s%lld", i ? ", " : "{\"parameters\": [",
               (long long)resnet_count_params(&model.extractors[i]->spec));
        extractor_free(model.extractors[i]);
    }
    printf("]}\n");
    param_set_free(model.classifier);
    arena_fini(&model.texts);
    backend_close(be);
    return status;
}
