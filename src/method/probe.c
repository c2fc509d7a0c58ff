#include "method/probe.h"

#include "method/learner_internal.h"

/* Top-1 on the classes [first, last) with only their logits competing. */
static enum der_status test_group(struct learner *learner, struct param_set *head, int first,
                                  int last, const struct train_hooks *hooks, double *top1)
{
    struct reading reading = {
        .learner = learner, .head = head, .first = first, .count = last - first};
    struct evaluation evaluation;
    enum der_status status = reading_test(&reading, first, last, hooks, &evaluation);
    if (status == DER_OK)
        *top1 = evaluation_top1(&evaluation, first, last);
    evaluation_fini(learner->be->ctx, &evaluation);
    reading_fini(&reading);
    return status;
}

static enum der_status ideal_classifier(struct learner *learner, const struct train_hooks *hooks,
                                        struct param_set **out)
{
    struct data_view *all;
    *out = NULL;
    TRY(view_range(learner->be->ctx, learner->options.train, 0, learner->n_classes, &all));
    enum der_status status = learn_classifier(learner, all, STAGE_IDEAL, hooks, out);
    view_free(all);
    return status;
}

enum der_status probe_representation(struct learner *learner, const int *first_class, int n_groups,
                                     const struct train_hooks *hooks, struct probe_reading *out)
{
    struct param_set *ideal;
    *out = (struct probe_reading){0};
    TRY(ideal_classifier(learner, hooks, &ideal));
    enum der_status status = test_group(learner, ideal, 0, learner->n_classes, hooks, &out->bound);
    for (int k = 0; k < n_groups && status == DER_OK; k++)
        status =
            test_group(learner, ideal, first_class[k], first_class[k + 1], hooks, &out->groups[k]);
    param_set_free(ideal);
    return status;
}

/* ---- the reference of forward transfer -------------------------------------------------------------- */

/* A learner whose first step is what the next step of `learner` would be for a fresh network. */
static enum der_status new_reference(const struct learner *learner, struct learner **out)
{
    struct learner_options options = learner->options;
    options.config.first = *learner_schedule(learner);
    options.config.expand = false;
    options.config.auxiliary = false;
    options.config.prune = false;
    options.config.reset_after_warmup = true; /* the same reference for every method */
    options.config.distill = DISTILL_NONE;
    options.config.readout = READOUT_TRAINED;
    options.config.classifier_positive = false;
    options.init = NULL;
    options.is_reference = true;
    options.steps_before = learner_step_number(learner) - 1; /* it belongs to the step to come */
    options.saver = (struct learner_saver){0};
    return learner_new(learner->be, &options, out);
}

static enum der_status run_reference(struct learner *reference, const struct data_view *view,
                                     int n_classes, int first, const struct train_hooks *hooks,
                                     struct probe_reference *out)
{
    struct param_set *ideal;
    TRY(learn_representation(reference, view, n_classes, hooks, &reference->classifier));
    reference->n_classes = n_classes;
    learner_open_features(reference);
    TRY(test_group(reference, reference->classifier, first, n_classes, hooks, &out->own));
    TRY(ideal_classifier(reference, hooks, &ideal));
    enum der_status status = test_group(reference, ideal, first, n_classes, hooks, &out->ideal);
    param_set_free(ideal);
    return status;
}

enum der_status probe_reference(struct learner *learner, int n_new, const struct train_hooks *hooks,
                                struct probe_reference *out)
{
    struct learner *reference;
    struct data_view *view;
    *out = (struct probe_reference){0};
    TRY(learner_training_view(learner, n_new, &view));
    enum der_status status = new_reference(learner, &reference);
    if (status == DER_OK)
        status = run_reference(reference, view, learner->n_classes + n_new, learner->n_classes,
                               hooks, out);
    learner_free(reference);
    view_free(view);
    return status;
}
