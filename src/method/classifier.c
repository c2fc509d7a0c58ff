/*
 * Second stage of a step: the classifier, re-initialised and trained on a class-balanced subset with
 * every extractor frozen. The loss is cross-entropy at temperature delta.
 */
#include "method/head.h"
#include "method/learner_internal.h"

#include <math.h>

enum { SCALAR_LR, SCALAR_ONE };

enum { STREAM_BASE = 100000 }; /* away from the streams of the first stage */

static const char *const LOSS_NAMES[] = {"main"};

struct head_stage {
    struct learner *learner;
    enum learner_stage which;
    struct param_set *head;
    struct buffer *scalars;
    struct assembly_cache assemblies;
};

/* A step of SGD moves logits over delta by lr |phi|^2 / delta^2 at most, and |phi|^2 grows with the number of features: at the
 * delta of wide networks the classifier of narrow ones has not learnt its images when the stage is over. */
double learner_temperature(const struct learner *learner)
{
    const struct config *config = &learner->options.config;
    const double features = (double)learner_feature_dim(learner) / learner->n_extractors;
    return config->temperature_features == 0
               ? config->temperature
               : config->temperature * sqrt(features / config->temperature_features);
}

static enum der_status describe(void *self, struct graph *g, struct assembly_io *io)
{
    struct head_stage *stage = self;
    const struct config *config = &stage->learner->options.config;
    struct param_use *head;
    int lr;
    int one;
    int logits;
    TRY(assembly_scalar(g, io, SCALAR_LR, "lr", &lr));
    TRY(assembly_scalar(g, io, SCALAR_ONE, "one", &one));
    TRY(assembly_attach(g, io, stage->head, true, &head));
    TRY(params_linear(head, g, io->matrix, &logits));
    struct xent_options options = {.temperature = (float)learner_temperature(stage->learner)};
    TRY(graph_softmax_xent(g, logits, io->labels, one, &options, &io->loss[0]));
    TRY(graph_rank(g, logits, io->labels, 0, 0, &io->rank));
    io->n_losses = 1;
    TRY(graph_backward(g));
    params_note_grads(head, g);
    const bool is_positive = config->classifier_positive && stage->which == STAGE_CLASSIFIER;
    struct sgd_attr sgd = {.momentum = (float)config->momentum,
                           .decay = (float)config->decay,
                           .gain = 1.0f,
                           .low = is_positive ? 0.0f : -INFINITY,
                           .high = INFINITY};
    return params_sgd(&head, 1, g, lr, &sgd);
}

static enum der_status program(void *self, int batch, struct stage_program *out)
{
    struct head_stage *stage = self;
    struct learner *learner = stage->learner;
    struct assembly_plan plan = {.be = learner->be,
                                 .frozen = learner->extractors,
                                 .n_frozen = learner->n_extractors,
                                 .desks = &learner->desks,
                                 .scalars = stage->scalars,
                                 .self = stage,
                                 .describe = describe};
    struct assembly *assembly;
    TRY(assembly_get(&stage->assemblies, &plan, batch, &assembly));
    *out = assembly_program(assembly);
    return DER_OK;
}

static void fill_scalars(void *self, const struct moment *now, float *scalars)
{
    (void)self;
    scalars[SCALAR_LR] = (float)now->lr;
    scalars[SCALAR_ONE] = 1.0f;
}

/* Only the stage of a step is saved, not a classifier that is trained to measure something. */
static enum der_status save(void *self, int epochs_done)
{
    const struct head_stage *stage = self;
    const struct learner *learner = stage->learner;
    const struct learner_saver *saver = &learner->options.saver;
    const struct extractor *newest = learner->extractors[learner->n_extractors - 1];
    if (stage->which != STAGE_CLASSIFIER ||
        !learner_saves_at(learner, epochs_done, learner->options.config.classifier.epochs))
        return DER_OK;
    struct stage_point point = {
        .phase = PHASE_CLASSIFIER,
        .epoch = epochs_done,
        .newest = newest->spec,
        .modules = {{"newest.", newest->params, false}, {"head.", stage->head, true}},
        .n_modules = 2};
    learner_add_last(learner, &point);
    return saver->save(saver->user, &point);
}

static const struct stage_ops STAGE = {.program = program, .scalars = fill_scalars, .save = save};

/* Puts the head where a saved state was. */
static enum der_status restore(struct head_stage *stage, int *first_epoch)
{
    struct learner *learner = stage->learner;
    struct state_file *from = learner->from;
    *first_epoch = 0;
    if (!from || from->state.point.phase != PHASE_CLASSIFIER || stage->which != STAGE_CLASSIFIER)
        return DER_OK;
    TRY(learner_check_epoch(learner, learner->options.config.classifier.epochs));
    TRY(state_restore(from, "head.", stage->head, true));
    TRY(state_check_done(from));
    *first_epoch = from->state.point.epoch;
    return DER_OK;
}

static enum der_status run_stage(struct head_stage *stage, const struct data_view *view,
                                 const struct train_hooks *hooks)
{
    struct learner *learner = stage->learner;
    struct der_ctx *ctx = learner->be->ctx;
    char name[LEARNER_STAGE_NAME];
    int first_epoch;
    TRY(restore(stage, &first_epoch));
    TRY(buffer_new(learner->be, ASSEMBLY_MAX_SCALARS * sizeof(float), &stage->scalars));
    struct stage loop = {.name = learner_stage_name(learner, stage->which, name),
                         .ops = &STAGE,
                         .self = stage,
                         .loss_names = LOSS_NAMES,
                         .n_losses = 1,
                         .schedule = learner->options.config.classifier,
                         .data = learner_batches(learner, view, stage->which),
                         .be = learner->be,
                         .resident = &learner->resident};
    return train_stage(ctx, &loop, first_epoch, hooks);
}

enum der_status learn_classifier(struct learner *learner, const struct data_view *view,
                                 enum learner_stage stage, const struct train_hooks *hooks,
                                 struct param_set **classifier)
{
    struct head_stage self = {.learner = learner, .which = stage};
    uint32_t stream = STREAM_BASE * (uint32_t)stage + (uint32_t)learner->step;
    *classifier = NULL;
    enum der_status status =
        head_new(learner->be, "classifier.weight", learner->n_classes, learner_feature_dim(learner),
                 INIT_LINEAR_UNIFORM, learner->options.config.seed, stream, &self.head);
    if (status == DER_OK)
        status = run_stage(&self, view, hooks);
    assembly_cache_fini(&self.assemblies);
    buffer_free(self.scalars);
    if (status != DER_OK) {
        param_set_free(self.head);
        return status;
    }
    param_set_freeze(self.head);
    *classifier = self.head;
    return DER_OK;
}
