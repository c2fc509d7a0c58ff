#include "method/learner_internal.h"

#include "core/rng.h"

#include <assert.h>
#include <string.h>

struct learner_settings learner_defaults(const struct resnet_spec *spec)
{
    struct learner_settings settings = {
        .spec = *spec,
        .batch = 128,
        .test_batch = 256,
        .representation = schedule_cifar(),
        .classifier = {.lr = 0.1, .epochs = 30, .n_drops = 1, .drop = {15}, .factor = 0.1},
        .momentum = 0.9f,
        .decay = 5e-4f,
        .expand = true,
        .auxiliary = true,
        .lambda_a = 1.0,
        .masks = true,
        .lambda_s = 0.75,
        .mask_gain = 5.0,
        .s_max = 400.0,
        .mask_clamp = 6.0,
        .hard_epoch = 110,
        .reset_after_warmup = true,
        .second_stage = true,
        .temperature = 5.0,
        .memory_mode = MEMORY_FIXED_TOTAL,
        .memory = 2000,
        .train_augment = *augment_preset("cifar100-train"),
        .test_augment = *augment_preset("cifar100-test"),
        .loader_threads = 1,
    };
    return settings;
}

enum der_status head_new(struct learner *learner, const char *name, int64_t rows, int64_t cols,
                         uint32_t stream, struct param_set **out)
{
    int index;
    TRY(param_set_new(learner->be->ctx, out));
    enum der_status status =
        param_set_add(*out, name, shape_2d(rows, cols), PARAM_LEARNT, INIT_LINEAR_UNIFORM, &index);
    if (status == DER_OK)
        status = param_set_allocate(*out, learner->be);
    if (status == DER_OK)
        status = param_set_init(*out, learner->settings.seed, stream);
    if (status == DER_OK)
        status = param_set_thaw(*out);
    if (status != DER_OK) {
        param_set_free(*out);
        *out = NULL;
    }
    return status;
}

uint64_t learner_seed(const struct learner *learner, enum learner_stage stage)
{
    struct rng_block block =
        rng_at(learner->settings.seed, RNG_STAGE, (uint32_t)stage, (uint64_t)learner->step);
    return (uint64_t)block.word[1] << 32 | block.word[0];
}

struct loader_options learner_batches(const struct learner *learner, const struct data_view *view,
                                      enum learner_stage stage)
{
    const struct learner_settings *settings = &learner->settings;
    return (struct loader_options){.set = learner->set,
                                   .view = view,
                                   .augment = &settings->train_augment,
                                   .split = DATA_TRAIN,
                                   .mode = LOADER_TRAIN,
                                   .bad_images = settings->bad_images,
                                   .batch = settings->batch,
                                   .threads = settings->loader_threads,
                                   .seed = learner_seed(learner, stage)};
}

int64_t learner_feature_dim(const struct learner *learner)
{
    int64_t dim = 0;
    for (int i = 0; i < learner->n_extractors; i++)
        dim += resnet_feature_dim(&learner->extractors[i]->spec);
    return dim;
}

int64_t learner_parameters(const struct learner *learner)
{
    int64_t count = 0;
    for (int i = 0; i < learner->n_extractors; i++)
        count += resnet_count_params(&learner->extractors[i]->spec);
    return count;
}

/* ---- testing, and features ----------------------------------------------------------------------- */

static enum der_status describe_testing(void *self, struct graph *g, struct assembly_io *io)
{
    struct learner *learner = self;
    struct param_use *head;
    int logits;
    TRY(assembly_attach(g, io, learner->classifier, false, &head));
    TRY(graph_linear(g, io->matrix, head->value[0], NO_VALUE, &logits));
    return graph_rank(g, logits, io->labels, 0, 0, &io->rank);
}

static enum der_status testing_assembly(struct learner *learner, int batch, struct assembly **out)
{
    struct assembly_plan plan = {.be = learner->be,
                                 .frozen = learner->extractors,
                                 .n_frozen = learner->n_extractors,
                                 .desks = &learner->desks,
                                 .self = learner,
                                 .describe = describe_testing};
    return assembly_get(&learner->testing, &plan, batch, out);
}

static enum der_status testing_program(void *self, int batch, struct stage_program *out)
{
    struct assembly *assembly;
    TRY(testing_assembly(self, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

/* Features and programs of a finished step; anything older is dropped. */
static void open_testing(struct learner *learner)
{
    assembly_cache_fini(&learner->testing);
    desks_fini(&learner->desks);
    desks_init(&learner->desks, learner->be, &learner->settings.spec, learner_feature_dim(learner));
}

static struct loader_options test_batches(const struct learner *learner,
                                          const struct data_view *view, enum data_split split)
{
    struct loader_options options = learner_batches(learner, view, STAGE_CLASSIFIER);
    options.augment = &learner->settings.test_augment;
    options.split = split;
    options.mode = LOADER_EVAL;
    options.batch = learner->settings.test_batch;
    return options;
}

enum der_status learner_test(struct learner *learner, const struct train_hooks *hooks,
                             struct evaluation *out)
{
    static const struct stage_ops testing = {.program = testing_program};
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    *out = (struct evaluation){0};
    TRY(view_classes(ctx, &learner->set->part[DATA_TEST], learner->order, 0, learner->n_classes,
                     &view));
    struct loader_options data = test_batches(learner, view, DATA_TEST);
    enum der_status status =
        evaluate(ctx, &testing, learner, &data, learner->n_classes, hooks, out);
    view_free(view);
    return status;
}

/* features [view->n, feature_dim] of all images of a view, with the test transform. */
static enum der_status extract(struct learner *learner, const struct data_view *view,
                               float *features)
{
    struct der_ctx *ctx = learner->be->ctx;
    struct loader_options data = test_batches(learner, view, DATA_TRAIN);
    size_t row = (size_t)learner_feature_dim(learner) * sizeof *features;
    const struct augment_spec *spec = &learner->settings.test_augment;
    size_t image = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    struct assembly *assembly;
    struct loader *loader;
    TRY(testing_assembly(learner, data.batch, &assembly));
    TRY(loader_new(ctx, &data, &loader));
    enum der_status status = loader_start(loader, 0, 0);
    while (status == DER_OK) {
        const struct batch *batch;
        status = loader_next(loader, &batch);
        if (status != DER_OK || !batch)
            break;
        size_t n = (size_t)batch->n;
        status = buffer_write(assembly->desk.image, 0, batch->images, n * image * sizeof(float));
        if (status == DER_OK)
            status = sequence_run(assembly->sequence);
        if (status == DER_OK)
            status = buffer_read(assembly->desk.matrix, 0, features, n * row);
        features += n * row / sizeof *features;
    }
    loader_free(loader);
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* Ranks the images of one class by herding on the super-feature and keeps the first `quota`. */
static enum der_status remember_class(struct learner *learner, int label, int quota)
{
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *view;
    TRY(view_classes(ctx, &learner->set->part[DATA_TRAIN], learner->order, label, label + 1,
                     &view));
    int64_t dim = learner_feature_dim(learner);
    size_t n = (size_t)view->n;
    float *features = mem_alloc(&ctx->mem, n * (size_t)dim, sizeof *features);
    int32_t *ranks = mem_alloc(&ctx->mem, n, sizeof *ranks);
    int64_t *samples = mem_alloc(&ctx->mem, n, sizeof *samples);
    enum der_status status =
        features && ranks && samples ? extract(learner, view, features) : ctx_nomem(ctx);
    int n_ranked = 0;
    if (status == DER_OK)
        status = exemplar_herd(ctx, features, (int)n, (int)dim, quota, ranks, &n_ranked);
    for (int i = 0; i < n_ranked; i++)
        samples[i] = view->items[ranks[i]].sample;
    if (status == DER_OK)
        status = exemplars_add(learner->memory, samples, n_ranked);
    mem_free(&ctx->mem, features);
    mem_free(&ctx->mem, ranks);
    mem_free(&ctx->mem, samples);
    view_free(view);
    return status;
}

static enum der_status remember(struct learner *learner, int first)
{
    int quota =
        exemplar_quota(learner->settings.memory_mode, learner->settings.memory, learner->n_classes);
    exemplars_truncate(learner->memory, quota);
    for (int label = first; label < learner->n_classes; label++)
        TRY(remember_class(learner, label, quota));
    return DER_OK;
}

/* ---- steps -------------------------------------------------------------------------------------- */

enum der_status learner_new(struct backend *be, const struct learner_settings *settings,
                            const struct dataset *set, const struct class_order *order,
                            struct learner **out)
{
    *out = NULL;
    TRY(resnet_spec_check(be->ctx, &settings->spec));
    struct learner *learner = mem_zalloc(&be->ctx->mem, 1, sizeof *learner);
    if (!learner)
        return ctx_nomem(be->ctx);
    learner->be = be;
    learner->settings = *settings;
    learner->set = set;
    learner->order = order;
    enum der_status status = exemplars_new(be->ctx, order->n, &learner->memory);
    if (status != DER_OK) {
        learner_free(learner);
        return status;
    }
    *out = learner;
    return DER_OK;
}

void learner_free(struct learner *learner)
{
    if (!learner)
        return;
    assembly_cache_fini(&learner->testing);
    desks_fini(&learner->desks);
    for (int i = 0; i < learner->n_extractors; i++)
        extractor_free(learner->extractors[i]);
    extractor_free(learner->last_full);
    param_set_free(learner->classifier);
    exemplars_free(learner->memory);
    mem_free(&learner->be->ctx->mem, learner);
}

/* D_t with M_t. */
static enum der_status training_view(struct learner *learner, int n_new, struct data_view **out)
{
    struct der_ctx *ctx = learner->be->ctx;
    struct data_view *fresh;
    struct data_view *kept = NULL;
    TRY(view_classes(ctx, &learner->set->part[DATA_TRAIN], learner->order, learner->n_classes,
                     learner->n_classes + n_new, &fresh));
    enum der_status status = exemplars_view(learner->memory, &kept);
    if (status == DER_OK)
        status = view_union(ctx, fresh, kept, out);
    view_free(fresh);
    view_free(kept);
    return status;
}

/* The second stage, on one balanced subset drawn for the step. */
static enum der_status balance(struct learner *learner, const struct data_view *view,
                               const struct train_hooks *hooks)
{
    struct data_view *balanced;
    struct param_set *classifier;
    TRY(view_balanced(learner->be->ctx, view, learner_seed(learner, STAGE_BALANCE),
                      (uint32_t)learner->step, &balanced));
    enum der_status status = learn_classifier(learner, balanced, hooks, &classifier);
    view_free(balanced);
    TRY(status);
    param_set_free(learner->classifier);
    learner->classifier = classifier;
    return DER_OK;
}

static enum der_status learn(struct learner *learner, const struct data_view *view, int n_new,
                             const struct train_hooks *hooks)
{
    struct param_set *classifier;
    assembly_cache_fini(&learner->testing);
    desks_fini(&learner->desks);
    if (!learner->settings.expand && learner->n_extractors > 0)
        extractor_free(learner->extractors[--learner->n_extractors]);
    enum der_status status = learn_representation(learner, view, n_new, hooks, &classifier);
    param_set_free(learner->classifier);
    learner->classifier = classifier;
    TRY(status);
    learner->n_classes += n_new;
    if (learner->settings.second_stage && learner->step > 0)
        TRY(balance(learner, view, hooks));
    open_testing(learner);
    return remember(learner, learner->n_classes - n_new);
}

enum der_status learner_step(struct learner *learner, int n_new, const struct train_hooks *hooks)
{
    struct der_ctx *ctx = learner->be->ctx;
    if (n_new < 1 || learner->n_classes + n_new > learner->order->n ||
        learner->step == LEARNER_MAX_STEPS)
        return ctx_fail(
            ctx, DER_ARG,
            "step %d cannot add %d classes to %d: the set has %d, and there are at most "
            "%d steps",
            learner->step + 1, n_new, learner->n_classes, learner->order->n, LEARNER_MAX_STEPS);
    struct data_view *view;
    TRY(training_view(learner, n_new, &view));
    enum der_status status = learn(learner, view, n_new, hooks);
    view_free(view);
    TRY(status);
    learner->step++;
    return DER_OK;
}
