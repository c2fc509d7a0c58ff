#include "experiment/experiment.h"

#include "config/config_json.h"
#include "core/clock.h"
#include "data/defaults.h"
#include "experiment/records.h"
#include "experiment/run_folder.h"
#include "metrics/transfer.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

static const double DEFAULT_HOLDOUT = 0.2; /* of a set without test images */

/* Everything a run opens, so that one function closes it. */
struct experiment {
    struct der_ctx *ctx;
    const struct experiment_options *options;
    const struct config *config;
    struct dataset *set;
    struct class_order *order;
    struct data_view *train, *test;
    enum data_split test_split;
    struct backend *be;
    struct learner *learner;
    struct run_folder *folder;
    struct incremental *metrics;
    int n_steps;
    double *representation; /* [n_steps, n_steps] A^i_j, where measured */
    double *reference;      /* [n_steps] Abar^i, where measured */
    double bound_sum;       /* of the classifier's upper bounds */
    double ms_per_iter;     /* of the newest representation stage */
    enum der_status failed; /* what a hook met; ends the run */
};

/* ---- opening ------------------------------------------------------------------------------------- */

static enum der_status open_data(struct experiment *x)
{
    const struct config *config = x->config;
    struct dataset_options which = {.class_list = x->options->class_list,
                                    .first_classes = config->first_classes};
    TRY(dataset_open_with(x->ctx, x->options->data, &which, &x->set));
    if (config->classes > 0 && x->set->n_classes != config->classes)
        return ctx_fail(x->ctx, DER_ARG, "preset '%s' is for %d classes, but %s has %d",
                        config->preset, config->classes, x->options->data, x->set->n_classes);
    if (x->set->n_classes > INT32_MAX - 1)
        return ctx_fail(x->ctx, DER_ARG, "%s has too many classes", x->options->data);
    return order_new(x->ctx, config->order, x->set->n_classes, &x->order);
}

/* What may be trained on, and what is tested on: test images, or held-out training images. */
static enum der_status open_views(struct experiment *x)
{
    const struct config *config = x->config;
    int n = x->set->n_classes;
    double share = config->validation;
    struct data_view *all;
    if (share == 0.0 && x->set->part[DATA_TEST].n == 0)
        share = DEFAULT_HOLDOUT;
    TRY(view_classes(x->ctx, &x->set->part[DATA_TRAIN], x->order, 0, n, &all));
    if (share > 0.0) {
        enum der_status status =
            view_holdout(x->ctx, all, share, config->seed, &x->train, &x->test);
        view_free(all);
        x->test_split = DATA_TRAIN;
        TRY(status);
    } else {
        x->train = all;
        x->test_split = DATA_TEST;
        TRY(view_classes(x->ctx, &x->set->part[DATA_TEST], x->order, 0, n, &x->test));
    }
    return config->per_class > 0 ? view_limit(x->train, n, config->per_class) : DER_OK;
}

static enum der_status choose_augment(const struct experiment *x, bool training,
                                      struct augment_spec *out)
{
    const char *name = config_augment(x->config, training);
    if (!name)
        return augment_defaults(x->set, training, out);
    *out = *augment_preset(name);
    out->channels = x->set->channels;
    return DER_OK;
}

static enum der_status open_learner(struct experiment *x)
{
    const struct experiment_options *o = x->options;
    const struct config *config = x->config;
    struct learner_options learner = {.config = *config,
                                      .set = x->set,
                                      .train = x->train,
                                      .test = x->test,
                                      .test_split = x->test_split,
                                      .n_classes = x->set->n_classes,
                                      .bad_images = o->bad_images,
                                      .loader_threads = o->loader_threads};
    TRY(choose_augment(x, true, &learner.train_augment));
    TRY(choose_augment(x, false, &learner.test_augment));
    const struct augment_spec *image = &learner.train_augment;
    TRY(resnet_spec_init(x->ctx, &learner.spec, config->network, image->channels, image->height,
                         image->width, config->width));
    TRY(backend_open(x->ctx, o->backend, &o->backend_options, &x->be));
    return learner_new(x->be, &learner, &x->learner);
}

static enum der_status open_folder(struct experiment *x)
{
    cJSON *settings;
    if (!x->options->out)
        return DER_OK;
    TRY(config_to_json(x->ctx, x->config, &settings));
    cJSON *config = record_config(x->options, settings, x->set, x->order, x->ctx->threads);
    json_free(settings);
    if (!config)
        return ctx_nomem(x->ctx);
    enum der_status status = run_folder_create(x->ctx, x->options->out, config, &x->folder);
    json_free(config);
    return status;
}

static enum der_status open_metrics(struct experiment *x)
{
    int n = config_steps(x->config, x->set->n_classes);
    if (n > LEARNER_MAX_STEPS)
        return ctx_fail(x->ctx, DER_ARG,
                        "%d classes in steps of %d are %d steps; at most %d can be",
                        x->set->n_classes, x->config->step_classes, n, LEARNER_MAX_STEPS);
    x->n_steps = x->options->max_steps > 0 && x->options->max_steps < n ? x->options->max_steps : n;
    size_t cells = (size_t)n * (size_t)n;
    x->representation = mem_zalloc(&x->ctx->mem, cells, sizeof *x->representation);
    x->reference = mem_zalloc(&x->ctx->mem, (size_t)n, sizeof *x->reference);
    if (!x->representation || !x->reference)
        return ctx_nomem(x->ctx);
    return incremental_new(x->ctx, &x->metrics);
}

static enum der_status open_all(struct experiment *x)
{
    TRY(config_check(x->ctx, x->config));
    TRY(open_data(x));
    TRY(open_views(x));
    TRY(open_metrics(x));
    TRY(open_learner(x));
    return open_folder(x);
}

static void close_all(struct experiment *x)
{
    run_folder_close(x->folder);
    incremental_free(x->metrics);
    mem_free(&x->ctx->mem, x->representation);
    mem_free(&x->ctx->mem, x->reference);
    learner_free(x->learner);
    backend_close(x->be);
    view_free(x->train);
    view_free(x->test);
    order_free(x->order);
    dataset_free(x->set);
}

/* ---- running ------------------------------------------------------------------------------------- */

static void on_progress(void *user, const struct train_progress *p)
{
    struct experiment *x = user;
    const struct experiment_hooks *hooks = &x->options->hooks;
    if (p->epoch_done && p->epoch + 1 == p->epochs && strstr(p->stage, "representation"))
        x->ms_per_iter = 1e3 * p->seconds / ((double)p->epochs * (double)p->n_iterations);
    if (p->epoch_done && x->failed == DER_OK)
        x->failed =
            run_folder_record(x->folder, x->ctx, record_epoch(x->learner->step + 1, p, x->learner));
    if (hooks->progress)
        hooks->progress(hooks->user, p);
}

static bool is_cancelled(void *user)
{
    struct experiment *x = user;
    const struct experiment_hooks *hooks = &x->options->hooks;
    return x->failed != DER_OK || (hooks->cancelled && hooks->cancelled(hooks->user));
}

/* Largest resident size of the process so far. */
static int64_t peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

static enum der_status test_step(struct experiment *x, const struct train_hooks *hooks,
                                 struct step_report *report)
{
    struct learner *learner = x->learner;
    struct evaluation e;
    int64_t params = learner_parameters(learner);
    int64_t total = params + param_set_count(learner->classifier);
    enum der_status status = learner_test(learner, hooks, &e);
    if (status == DER_OK) {
        struct incremental_step step = {.n_classes = learner->n_classes,
                                        .n = e.n,
                                        .top1 = e.top1,
                                        .top5 = e.top5,
                                        .parameters = params,
                                        .parameters_with_classifier = total};
        status = incremental_add(x->metrics, &step);
    }
    evaluation_fini(x->ctx, &e);
    TRY(status);
    report->n_classes = learner->n_classes;
    report->top1 = incremental_last(x->metrics, TOP1);
    report->top5 = incremental_last(x->metrics, TOP5);
    report->avg_top1 = incremental_average(x->metrics, TOP1);
    report->avg_top5 = incremental_average(x->metrics, TOP5);
    report->forgetting = incremental_forgetting(x->metrics);
    report->params = params;
    report->params_total = total;
    report->avg_params = incremental_average_parameters(x->metrics);
    return DER_OK;
}

/* What was asked for beyond the plain accuracies. */
struct extras {
    struct probe_reading reading;
    struct probe_reference reference;
    struct latency_report latency;
};

static bool wants(const struct experiment *x, enum measure what)
{
    return (x->options->measure & (unsigned)what) != 0;
}

static enum der_status measure_extras(struct experiment *x, int t, const struct train_hooks *hooks,
                                      struct extras *extras, struct step_record *record)
{
    if (wants(x, MEASURE_REPRESENTATION) || wants(x, MEASURE_TRANSFER)) {
        TRY(probe_representation(x->learner, hooks, &extras->reading));
        memcpy(x->representation + (size_t)t * (size_t)x->n_steps, extras->reading.groups,
               (size_t)(t + 1) * sizeof *x->representation);
        x->bound_sum += extras->reading.bound;
        record->reading = &extras->reading;
    }
    if (wants(x, MEASURE_LATENCY)) {
        TRY(latency_measure(x->learner, &extras->latency));
        record->latency = &extras->latency;
    }
    return DER_OK;
}

static enum der_status run_step(struct experiment *x, int t, int n_new, struct step_report *report)
{
    struct train_hooks hooks = {.progress = on_progress, .cancelled = is_cancelled, .user = x};
    struct extras extras;
    struct step_record record = {
        .report = report, .metrics = x->metrics, .learner = x->learner, .n_new = n_new};
    double start = clock_seconds();
    *report = (struct step_report){.step = t + 1, .n_steps = x->n_steps};
    if (wants(x, MEASURE_TRANSFER) && t > 0) {
        TRY(probe_reference(x->learner, n_new, &hooks, &extras.reference));
        x->reference[t] = extras.reference.ideal;
        record.reference = &extras.reference;
    }
    TRY(learner_step(x->learner, n_new, &hooks));
    TRY(test_step(x, &hooks, report));
    report->seconds = clock_seconds() - start;
    TRY(measure_extras(x, t, &hooks, &extras, &record));
    record.ms_per_iter = x->ms_per_iter;
    record.peak_bytes = peak_bytes();
    TRY(run_folder_record(x->folder, x->ctx, record_step(&record)));
    TRY(run_folder_sync(x->folder));
    if (x->options->hooks.step)
        x->options->hooks.step(x->options->hooks.user, report);
    return DER_OK;
}

/* Joint training at the last step only sees all classes of the steps before at once. */
static bool is_skipped(const struct experiment *x, int t)
{
    return x->config->method == METHOD_JOINT && x->config->joint_last && t + 1 < x->n_steps;
}

static enum der_status run_steps(struct experiment *x, struct experiment_summary *summary)
{
    int n_new = 0;
    for (int t = 0; t < x->n_steps; t++) {
        n_new += config_step_classes(x->config, x->set->n_classes, t);
        if (is_skipped(x, t))
            continue;
        TRY(run_step(x, t, n_new, &summary->last));
        n_new = 0;
    }
    return DER_OK;
}

static void summarise(const struct experiment *x, struct experiment_summary *summary)
{
    int n = x->n_steps;
    summary->steps = n;
    summary->n_classes = x->learner->n_classes;
    summary->n_train = x->train->n;
    summary->n_test = x->test->n;
    summary->on_validation = x->test_split == DATA_TRAIN;
    summary->bwt = summary->fwt = summary->bound = NAN;
    if (wants(x, MEASURE_REPRESENTATION) || wants(x, MEASURE_TRANSFER)) {
        summary->bound = x->bound_sum / x->metrics->n_steps;
        summary->bwt = transfer_backward(x->representation, n);
    }
    if (wants(x, MEASURE_TRANSFER))
        summary->fwt = transfer_forward(x->representation, x->reference, n);
}

static enum der_status run(struct experiment *x, struct experiment_summary *summary)
{
    double start = clock_seconds();
    TRY(open_all(x));
    enum der_status status = run_steps(x, summary);
    TRY(x->failed);
    TRY(status);
    summarise(x, summary);
    summary->seconds = clock_seconds() - start;
    TRY(run_folder_record(x->folder, x->ctx, record_end(summary)));
    return run_folder_sync(x->folder);
}

enum der_status experiment_run(struct der_ctx *ctx, const struct experiment_options *options,
                               struct experiment_summary *out)
{
    struct experiment x = {.ctx = ctx, .options = options, .config = &options->config};
    *out = (struct experiment_summary){0};
    enum der_status status = run(&x, out);
    close_all(&x);
    return status;
}
