#include "method/learner_internal.h"

#include "core/rng.h"
#include "method/head.h"

#include <assert.h>
#include <stdio.h>

uint64_t learner_seed(const struct learner *learner, enum learner_stage stage)
{
    struct rng_block block =
        rng_at(learner->options.config.seed, RNG_STAGE, (uint32_t)stage, (uint64_t)learner->step);
    return (uint64_t)block.word[1] << 32 | block.word[0];
}

const char *learner_stage_name(const struct learner *learner, enum learner_stage stage,
                               char text[LEARNER_STAGE_NAME])
{
    static const char *const names[] = {[STAGE_REPRESENTATION] = "representation",
                                        [STAGE_CLASSIFIER] = "classifier",
                                        [STAGE_IDEAL] = "ideal classifier"};
    static const char *const of_reference[] = {
        [STAGE_REPRESENTATION] = "reference", [STAGE_IDEAL] = "reference classifier"};
    (void)snprintf(text, LEARNER_STAGE_NAME, "step %d, %s", learner_step_number(learner),
                   learner->options.is_reference ? of_reference[stage] : names[stage]);
    return text;
}

struct loader_options learner_batches(const struct learner *learner, const struct data_view *view,
                                      enum learner_stage stage)
{
    const struct learner_options *options = &learner->options;
    return (struct loader_options){.set = options->set,
                                   .view = view,
                                   .augment = &options->train_augment,
                                   .split = DATA_TRAIN,
                                   .mode = LOADER_TRAIN,
                                   .bad_images = options->bad_images,
                                   .batch = options->config.batch,
                                   .threads = options->loader_threads,
                                   .seed = learner_seed(learner, stage)};
}

struct loader_options learner_test_batches(const struct learner *learner,
                                           const struct data_view *view, enum data_split split)
{
    struct loader_options options = learner_batches(learner, view, STAGE_CLASSIFIER);
    options.augment = &learner->options.test_augment;
    options.split = split;
    options.mode = LOADER_EVAL;
    options.batch = learner->options.config.test_batch;
    return options;
}

const struct schedule *learner_schedule(const struct learner *learner)
{
    const struct config *config = &learner->options.config;
    return learner->step == 0 ? &config->first : &config->representation;
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

void learner_desks(const struct learner *learner, int64_t feature_dim, struct desks *desks)
{
    const struct config *config = &learner->options.config;
    desks_init(desks, learner->be, &learner->options.spec, feature_dim);
    desks->usual[0] = config->batch;
    desks->usual[1] = config->test_batch;
}

void learner_close_features(struct learner *learner)
{
    const struct config *config = &learner->options.config;
    const int batches[] = {config->batch, config->test_batch};
    assembly_cache_fini(&learner->testing);
    desks_fini(&learner->desks);
    for (int i = 0; i < learner->n_extractors; i++)
        extractor_trim(learner->extractors[i], batches, 2);
}

void learner_open_features(struct learner *learner)
{
    learner_close_features(learner);
    learner_desks(learner, learner_feature_dim(learner), &learner->desks);
}

enum der_status learner_test(struct learner *learner, const struct train_hooks *hooks,
                             struct evaluation *out)
{
    struct reading reading = {.learner = learner,
                              .head = learner->classifier,
                              .keeps_guesses = true,
                              .assemblies = learner->testing};
    enum der_status status = reading_test(&reading, 0, learner->n_classes, hooks, out);
    learner->testing = reading.assemblies; /* kept: tests come in pairs and more */
    return status;
}

/* ---- steps -------------------------------------------------------------------------------------- */

enum der_status learner_new(struct backend *be, const struct learner_options *options,
                            struct learner **out)
{
    *out = NULL;
    TRY(resnet_spec_check(be->ctx, &options->spec));
    struct learner *learner = mem_zalloc(&be->ctx->mem, 1, sizeof *learner);
    if (!learner)
        return ctx_nomem(be->ctx);
    learner->be = be;
    learner->options = *options;
    resident_init(&learner->resident, be, options->set);
    enum der_status status = exemplars_new(be->ctx, options->n_classes, &learner->memory);
    if (status != DER_OK) {
        learner_free(learner);
        return status;
    }
    *out = learner;
    return DER_OK;
}

void learner_drop_extractors(struct learner *learner)
{
    while (learner->n_extractors > 0)
        extractor_free(learner->extractors[--learner->n_extractors]);
}

void learner_free(struct learner *learner)
{
    if (!learner)
        return;
    learner_close_features(learner);
    resident_fini(&learner->resident);
    learner_drop_extractors(learner);
    extractor_free(learner->last_full);
    param_set_free(learner->last_masks);
    param_set_free(learner->classifier);
    param_set_free(learner->trained_head);
    exemplars_free(learner->memory);
    mem_free(&learner->be->ctx->mem, learner);
}

/* M_t, with the images that join. */
static enum der_status known_view(struct learner *learner, struct data_view **out)
{
    struct data_view *kept;
    if (!learner->options.joining)
        return exemplars_view(learner->memory, out);
    *out = NULL;
    TRY(exemplars_view(learner->memory, &kept));
    enum der_status status = view_union(learner->be->ctx, kept, learner->options.joining, out);
    view_free(kept);
    return status;
}

enum der_status learner_training_view(struct learner *learner, int n_new, struct data_view **out)
{
    struct der_ctx *ctx = learner->be->ctx;
    const struct data_view *all = learner->options.train;
    int n_classes = learner->n_classes + n_new;
    struct data_view *fresh;
    struct data_view *kept;
    *out = NULL;
    if (learner->options.config.method == METHOD_JOINT)
        return view_range(ctx, all, 0, n_classes, out);
    TRY(view_range(ctx, all, learner->n_classes, n_classes, &fresh));
    enum der_status status = known_view(learner, &kept);
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
    TRY(view_balanced_to(learner->be->ctx, view, learner->options.balance_least,
                         learner_seed(learner, STAGE_BALANCE), (uint32_t)learner->step, &balanced));
    enum der_status status =
        learn_classifier(learner, balanced, STAGE_CLASSIFIER, hooks, &classifier);
    view_free(balanced);
    TRY(status);
    param_set_free(learner->classifier);
    learner->classifier = classifier;
    learner->temperature = learner_temperature(learner);
    return DER_OK;
}

struct param_set *learner_trained_head(const struct learner *learner)
{
    return learner->trained_head ? learner->trained_head : learner->classifier;
}

/* The first stage; or, in a step that goes on behind it, what it left. A single extractor is replaced: at once, or,
 * where it is the teacher, by the stage. */
static enum der_status represent(struct learner *learner, const struct data_view *view, int n_new,
                                 const struct train_hooks *hooks)
{
    const struct config *config = &learner->options.config;
    struct param_set *classifier;
    const bool is_over = learner->from && learner->from->state.point.phase == PHASE_CLASSIFIER;
    if (!config->expand && (config->distill == DISTILL_NONE || is_over))
        learner_drop_extractors(learner);
    if (is_over)
        return learner_restore_newest(learner);
    enum der_status status = learn_representation(learner, view, n_new, hooks, &classifier);
    param_set_free(learner->classifier);
    learner->classifier = classifier;
    param_set_free(learner->trained_head);
    learner->trained_head = NULL;
    return status;
}

static enum der_status learn(struct learner *learner, const struct data_view *view, int n_new,
                             const struct data_view *aside, const struct train_hooks *hooks)
{
    const struct config *config = &learner->options.config;
    learner_close_features(learner);
    if (config->method == METHOD_JOINT) {
        extractor_free(learner->last_full);
        learner->last_full = NULL;
    }
    TRY(represent(learner, view, n_new, hooks));
    learner->n_classes += n_new;
    learner->temperature = 1.0;
    learner_open_features(learner);
    if (config->second_stage && learner->step > 0)
        TRY(balance(learner, view, hooks));
    if (config->readout == READOUT_ALIGNED && learner->step > 0)
        TRY(head_align(learner->classifier, learner->n_classes - n_new));
    if (aside && learner->step > 0)
        TRY(learner_correct(learner, aside, learner->n_classes - n_new));
    if (config->method == METHOD_JOINT)
        return DER_OK;
    TRY(learner_remember(learner, learner->n_classes - n_new, aside));
    return config->readout == READOUT_MEANS ? learner_read_means(learner) : DER_OK;
}

enum der_status learner_step(struct learner *learner, int n_new, const struct train_hooks *hooks)
{
    return learner_resume_step(learner, n_new, NULL, hooks);
}

enum der_status learner_resume_step(struct learner *learner, int n_new, struct state_file *from,
                                    const struct train_hooks *hooks)
{
    struct der_ctx *ctx = learner->be->ctx;
    int n_classes = learner->options.n_classes;
    if (n_new < 1 || learner->n_classes + n_new > n_classes || learner->step == LEARNER_MAX_STEPS)
        return ctx_fail(
            ctx, DER_ARG,
            "step %d cannot add %d classes to %d: the set has %d, and there are at most "
            "%d steps",
            learner_step_number(learner), n_new, learner->n_classes, n_classes, LEARNER_MAX_STEPS);
    struct data_view *view;
    struct data_view *kept = NULL;
    struct data_view *aside = NULL;
    enum der_status status = DER_OK;
    TRY(learner_training_view(learner, n_new, &view));
    if (learner->options.config.readout == READOUT_CORRECTED)
        status = learner_set_aside(learner, view, n_new, &kept, &aside);
    learner->from = from;
    if (status == DER_OK)
        status = learn(learner, kept ? kept : view, n_new, aside, hooks);
    learner->from = NULL;
    view_free(view);
    view_free(kept);
    view_free(aside);
    TRY(status);
    learner->step++;
    learner->first_class[learner->step] = learner->n_classes;
    return DER_OK;
}

enum der_status learner_refresh(struct learner *learner, const struct train_hooks *hooks)
{
    struct data_view *view;
    assert(learner->n_classes > 0 && learner->options.config.second_stage);
    TRY(known_view(learner, &view));
    learner_open_features(learner);
    enum der_status status = balance(learner, view, hooks);
    view_free(view);
    TRY(status);
    return learner_remember(learner, learner->n_classes, NULL);
}
