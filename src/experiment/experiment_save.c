/*
 * Saving a run, and putting a fresh one where a saved one stood.
 */
#include "experiment/experiment_internal.h"

#include "core/clock.h"

#include <string.h>

/* ---- saving -------------------------------------------------------------------------------------- */

static struct run_state state_of(const struct experiment *x, const struct stage_point *point)
{
    return (struct run_state){.point = *point,
                              .step = x->step,
                              .n_steps = x->n_steps,
                              .metrics = x->metrics,
                              .representation = x->representation,
                              .reference = x->reference,
                              .bound_sum = x->bound_sum,
                              .reference_own = x->reference_own};
}

enum der_status experiment_save_point(void *user, const struct stage_point *point)
{
    struct experiment *x = user;
    if (clock_seconds() - x->saved < x->options.save_pause)
        return DER_OK;
    struct run_state state = state_of(x, point);
    TRY(run_folder_save(x->folder, &state));
    x->saved = clock_seconds();
    return DER_OK;
}

enum der_status experiment_save_step(struct experiment *x)
{
    if (!x->folder)
        return DER_OK;
    struct stage_point point = learner_point(x->learner);
    if (x->step == x->n_steps)
        point.phase = PHASE_FINISHED;
    struct run_state state = state_of(x, &point);
    struct model model = learner_model(x->learner, x->classes);
    struct prediction_file predictions = {.ctx = x->ctx,
                                          .step = model.info.n_steps,
                                          .split = x->test_split,
                                          .classes = x->classes,
                                          .n_classes = model.info.n_classes,
                                          .predictions = x->tested.predictions,
                                          .n = x->tested.n_predictions};
    TRY(run_folder_save_step(x->folder, &model, x->learner->memory, &predictions, &state));
    x->saved = clock_seconds();
    return DER_OK;
}

/* ---- and back -------------------------------------------------------------------------------------- */

static enum der_status refuse(const struct experiment *x, const char *what)
{
    return ctx_fail(x->ctx, DER_FORMAT, "%s: the %s does not belong to the state of the run",
                    x->options.out, what);
}

static bool same_names(const struct experiment *x, const char *const *names, int n)
{
    for (int k = 0; k < n; k++)
        if (strcmp(names[k], x->classes[k]) != 0)
            return false;
    return true;
}

/* Every sample is an image of its class. */
static bool same_labels(const struct experiment *x, const struct exemplars *memory)
{
    const int32_t *labels = x->set->part[DATA_TRAIN].labels;
    for (int k = 0; k < memory->n_classes; k++)
        for (int i = 0; i < memory->lists[k].n; i++)
            if (labels[memory->lists[k].samples[i]] != x->order->class_of[k])
                return false;
    return true;
}

static enum der_status adopt(struct experiment *x, struct model *model, struct exemplar_file *file)
{
    const struct incremental *tests = x->from->state.metrics;
    const struct model_info *info = &model->info;
    int n_classes = 0;
    if (info->n_steps != tests->n_steps || info->n_classes > x->set->n_classes ||
        !same_names(x, info->classes, info->n_classes))
        return refuse(x, "model");
    for (int t = 0; t < info->n_steps; t++) {
        n_classes += info->steps[t];
        if (n_classes != tests->steps[t].n_classes)
            return refuse(x, "model");
    }
    if (file->step != tests->n_steps || !same_names(x, file->classes, file->memory->n_classes) ||
        !same_labels(x, file->memory))
        return refuse(x, "list of exemplars");
    return learner_adopt(x->learner, model, &file->memory);
}

static enum der_status restore_learner(struct experiment *x)
{
    struct model *model;
    struct exemplar_file *file = NULL;
    TRY(run_folder_load_model(x->folder, x->be, &model));
    enum der_status status =
        run_folder_load_exemplars(x->folder, x->set->n_classes, x->set->part[DATA_TRAIN].n, &file);
    if (status == DER_OK)
        status = adopt(x, model, file);
    exemplar_file_free(file);
    model_free(model);
    return status;
}

enum der_status experiment_restore(struct experiment *x)
{
    const struct run_state *state = &x->from->state;
    size_t n = (size_t)x->n_steps;
    if (state->n_steps != x->n_steps)
        return refuse(x, "number of steps");
    for (int t = 0; t < state->metrics->n_steps; t++)
        TRY(incremental_add(x->metrics, &state->metrics->steps[t]));
    memcpy(x->representation, state->representation, n * n * sizeof *x->representation);
    memcpy(x->reference, state->reference, n * sizeof *x->reference);
    x->reference_own = state->reference_own;
    x->bound_sum = state->bound_sum;
    x->step = state->step;
    if (state->metrics->n_steps > 0)
        TRY(restore_learner(x));
    if (state->point.phase == PHASE_BETWEEN)
        TRY(learner_restore_full(x->learner, x->from));
    return DER_OK;
}
