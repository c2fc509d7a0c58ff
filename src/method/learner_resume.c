/*
 * A learner that is put down and taken up again: what it hands out to be saved, and how a fresh one becomes
 * what was saved.
 */
#include "method/learner_internal.h"
#include "method/head.h"
#include "method/masks.h"

#include <der/version.h>

#include <assert.h>

bool learner_saves_at(const struct learner *learner, int epochs_done, int epochs)
{
    const struct learner_saver *saver = &learner->options.saver;
    return saver->save && saver->every > 0 &&
           (epochs_done % saver->every == 0 || epochs_done == epochs);
}

enum der_status learner_check_epoch(const struct learner *learner, int epochs)
{
    const struct state_file *from = learner->from;
    if (from->state.point.epoch <= epochs)
        return DER_OK;
    return ctx_fail(learner->be->ctx, DER_FORMAT, "%s: epoch %d of a stage that has %d", from->path,
                    from->state.point.epoch, epochs);
}

void learner_add_last(const struct learner *learner, struct stage_point *point)
{
    stage_point_add(point, (struct state_module){"last_full.", learner->last_full->params, false});
    stage_point_add(point, (struct state_module){"last_masks.", learner->last_masks, false});
}

void learner_add_trained_head(const struct learner *learner, struct stage_point *point)
{
    stage_point_add(point, (struct state_module){"trained_head.", learner->trained_head, false});
}

struct stage_point learner_point(const struct learner *learner)
{
    struct stage_point point = {.phase = PHASE_BETWEEN};
    learner_add_last(learner, &point);
    learner_add_trained_head(learner, &point);
    return point;
}

/* An extractor whose parameters come from a module. */
static enum der_status restore_extractor(struct learner *learner, struct state_file *from,
                                         const char *name, const struct resnet_spec *spec,
                                         struct extractor **out)
{
    TRY(extractor_new(learner->be, spec, out));
    enum der_status status = state_restore(from, name, (*out)->params, false);
    if (status == DER_OK)
        return DER_OK;
    extractor_free(*out);
    *out = NULL;
    return status;
}

/* A fresh set, filled from a module, takes the place of another. */
static enum der_status restore_into(struct param_set **place, struct state_file *from,
                                    const char *name, struct param_set *fresh)
{
    param_set_freeze(fresh);
    enum der_status status = state_restore(from, name, fresh, false);
    if (status != DER_OK) {
        param_set_free(fresh);
        return status;
    }
    param_set_free(*place);
    *place = fresh;
    return DER_OK;
}

static enum der_status restore_masks(struct learner *learner, struct state_file *from)
{
    const struct config *config = &learner->options.config;
    struct param_set *masks;
    TRY(masks_new(learner->be, &learner->options.spec, config->mask_init, config->seed, 0, &masks));
    return restore_into(&learner->last_masks, from, "last_masks.", masks);
}

static enum der_status restore_last(struct learner *learner, struct state_file *from)
{
    extractor_free(learner->last_full);
    learner->last_full = NULL;
    TRY(restore_extractor(learner, from, "last_full.", &learner->options.spec,
                          &learner->last_full));
    return learner->options.config.prune ? restore_masks(learner, from) : DER_OK;
}

/* Means took the place of what was trained at every step, corrected rows at every step but the first. */
static bool has_trained_head(const struct learner *learner)
{
    const enum readout readout = learner->options.config.readout;
    return readout == READOUT_MEANS || (readout == READOUT_CORRECTED && learner->step > 1);
}

/* The trained head has the shape of the classifier that took its place. */
static enum der_status restore_trained_head(struct learner *learner, struct state_file *from)
{
    struct param_set *head;
    if (!learner->classifier || !has_trained_head(learner))
        return DER_OK;
    const struct param *row = &learner->classifier->items[0];
    TRY(head_new(learner->be, row->name, row->shape.dim[0], row->shape.dim[1], INIT_ZERO, 0, 0,
                 &head));
    return restore_into(&learner->trained_head, from, "trained_head.", head);
}

enum der_status learner_restore_trained_head(struct learner *learner)
{
    return learner->from ? restore_trained_head(learner, learner->from) : DER_OK;
}

enum der_status learner_restore_full(struct learner *learner, struct state_file *from)
{
    TRY(restore_last(learner, from));
    TRY(restore_trained_head(learner, from));
    return state_check_done(from);
}

enum der_status learner_restore_newest(struct learner *learner)
{
    struct state_file *from = learner->from;
    const struct resnet_spec *full = &learner->options.spec;
    struct resnet_spec spec = from->state.point.newest;
    struct extractor *newest;
    if (learner->n_extractors == LEARNER_MAX_STEPS)
        return ctx_fail(learner->be->ctx, DER_FORMAT, "%s: more than %d extractors", from->path,
                        LEARNER_MAX_STEPS);
    spec.in_channels = full->in_channels;
    spec.height = full->height;
    spec.width = full->width;
    TRY(restore_last(learner, from));
    TRY(restore_extractor(learner, from, "newest.", &spec, &newest));
    learner->extractors[learner->n_extractors++] = newest;
    return DER_OK;
}

/* ---- models --------------------------------------------------------------------------------------- */

struct model learner_model(const struct learner *learner, const char *const *classes)
{
    const struct config *config = &learner->options.config;
    struct model model = {.ctx = learner->be->ctx,
                          .info = {.classes = classes,
                                   .n_classes = learner->n_classes,
                                   .n_steps = learner->step,
                                   .input = learner->options.test_augment,
                                   .network = config->network,
                                   .width = config->width,
                                   .temperature = learner->temperature,
                                   .version = der_version(),
                                   .preset = config->preset,
                                   .seed = config->seed},
                          .n_extractors = learner->n_extractors,
                          .classifier = learner->classifier};
    for (int t = 0; t < learner->step; t++)
        model.info.steps[t] = learner->first_class[t + 1] - learner->first_class[t];
    for (int i = 0; i < learner->n_extractors; i++)
        model.extractors[i] = learner->extractors[i];
    return model;
}

static enum der_status check_model(const struct learner *learner, const struct model *model,
                                   const struct exemplars *memory)
{
    struct der_ctx *ctx = learner->be->ctx;
    const struct resnet_spec *spec = &learner->options.spec;
    const struct augment_spec *input = &model->info.input;
    bool keeps = learner->options.config.method != METHOD_JOINT;
    if (input->channels != spec->in_channels || input->height != spec->height ||
        input->width != spec->width)
        return ctx_fail(ctx, DER_FORMAT,
                        "the model reads images of %d x %d x %d, the run %d x %d x %d",
                        input->channels, input->height, input->width, spec->in_channels,
                        spec->height, spec->width);
    if (model->info.n_classes > learner->options.n_classes)
        return ctx_fail(ctx, DER_FORMAT, "the model has %d classes, the run %d",
                        model->info.n_classes, learner->options.n_classes);
    if (memory->n_classes != (keeps ? model->info.n_classes : 0))
        return ctx_fail(ctx, DER_FORMAT, "the model has %d classes, %d have exemplars",
                        model->info.n_classes, memory->n_classes);
    return DER_OK;
}

enum der_status learner_adopt(struct learner *learner, struct model *model,
                              struct exemplars **memory)
{
    const struct model_info *info = &model->info;
    TRY(check_model(learner, model, *memory));
    for (int i = 0; i < model->n_extractors; i++)
        learner->extractors[i] = model->extractors[i];
    learner->n_extractors = model->n_extractors;
    model->n_extractors = 0;
    learner->classifier = model->classifier;
    model->classifier = NULL;
    exemplars_free(learner->memory);
    learner->memory = *memory;
    *memory = NULL;
    for (int t = 0; t < info->n_steps; t++)
        learner->first_class[t + 1] = learner->first_class[t] + info->steps[t];
    learner->step = info->n_steps;
    learner->n_classes = info->n_classes;
    learner->temperature = info->temperature;
    learner_open_features(learner);
    return DER_OK;
}

enum der_status learner_hand_over(struct learner *learner, const char *const *classes,
                                  struct model **model, struct extractor **last_full)
{
    struct model parts = learner_model(learner, classes);
    assert(!learner->trained_head);
    *last_full = NULL;
    TRY(model_new(&parts, model));
    for (int i = 0; i < learner->n_extractors; i++)
        (*model)->extractors[i] = learner->extractors[i];
    (*model)->n_extractors = learner->n_extractors;
    (*model)->classifier = learner->classifier;
    learner_close_features(learner);
    learner->n_extractors = 0;
    learner->classifier = NULL;
    *last_full = learner->last_full;
    learner->last_full = NULL;
    return DER_OK;
}
