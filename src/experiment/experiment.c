#include "experiment/experiment_internal.h"

#include "core/clock.h"
#include "experiment/records.h"
#include "metrics/transfer.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

static void on_progress(void *user, const struct train_progress *p)
{
    struct experiment *x = user;
    const struct experiment_hooks *hooks = &x->options.hooks;
    if (hooks->progress)
        hooks->progress(hooks->user, p);
}

/* Writes a record down and tells the listener; `object` is freed. */
static enum der_status write_record(struct experiment *x, cJSON *object)
{
    const struct experiment_listener *listener = x->options.listener;
    if (object && listener)
        listener->record(listener->user, object, x->learner);
    return run_folder_record(x->folder, x->ctx, object);
}

static enum der_status on_epoch_done(void *user, const struct train_progress *p)
{
    struct experiment *x = user;
    if (p->epoch + 1 == p->epochs && strstr(p->stage, "representation"))
        x->ms_per_iter = 1e3 * p->seconds / (double)p->iterations_run;
    return write_record(x, record_epoch(x->step + 1, p, x->learner));
}

static bool is_cancelled(void *user)
{
    struct experiment *x = user;
    const struct experiment_hooks *hooks = &x->options.hooks;
    return hooks->cancelled && hooks->cancelled(hooks->user);
}

/* Largest resident size of the process so far. */
static int64_t peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

void experiment_report(const struct incremental *metrics, struct step_report *report)
{
    const struct incremental_step *last = &metrics->steps[metrics->n_steps - 1];
    report->n_classes = last->n_classes;
    report->top1 = incremental_last(metrics, TOP1);
    report->top5 = incremental_last(metrics, TOP5);
    report->avg_top1 = incremental_average(metrics, TOP1);
    report->avg_top5 = incremental_average(metrics, TOP5);
    report->forgetting = incremental_forgetting(metrics);
    report->params = last->parameters;
    report->params_total = last->parameters_with_classifier;
    report->avg_params = incremental_average_parameters(metrics);
}

static enum der_status test_step(struct experiment *x, const struct train_hooks *hooks,
                                 struct step_report *report)
{
    struct learner *learner = x->learner;
    struct evaluation *e = &x->tested;
    int64_t params = learner_parameters(learner);
    int64_t total = params + param_set_count(learner->classifier);
    evaluation_fini(x->ctx, e);
    TRY(learner_test(learner, hooks, e));
    struct incremental_step step = {.n_classes = learner->n_classes,
                                    .n = e->n,
                                    .top1 = e->top1,
                                    .top5 = e->top5,
                                    .parameters = params,
                                    .parameters_with_classifier = total};
    TRY(incremental_add(x->metrics, &step));
    experiment_report(x->metrics, report);
    return DER_OK;
}

/* Who was taken for whom in the latest test, by the classes of the protocol's steps: counts [n_groups][n_groups],
 * which the caller frees. */
static enum der_status count_confusion(const struct experiment *x, int n_groups, int64_t **counts)
{
    struct mem *mem = &x->ctx->mem;
    const struct evaluation *e = &x->tested;
    size_t side = (size_t)n_groups;
    int *group_of = mem_alloc(mem, (size_t)e->n_classes, sizeof *group_of);
    *counts = mem_alloc(mem, side * side, sizeof **counts);
    if (!group_of || !*counts) {
        mem_free(mem, group_of);
        return ctx_nomem(x->ctx);
    }
    for (int g = 0; g < n_groups; g++)
        for (int label = x->first_class[g]; label < x->first_class[g + 1]; label++)
            group_of[label] = g;
    prediction_confusion(e->predictions, e->n_predictions, group_of, n_groups, *counts);
    mem_free(mem, group_of);
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
    return (x->options.measure & (unsigned)what) != 0;
}

/* Transfer compares steps with each other: joint training at the end is one alone. */
static bool compares_steps(const struct experiment *x)
{
    return experiment_first_step(x) == 0;
}

static enum der_status measure_extras(struct experiment *x, int t, const struct train_hooks *hooks,
                                      struct extras *extras, struct step_record *record)
{
    if (wants(x, MEASURE_REPRESENTATION) || wants(x, MEASURE_TRANSFER)) {
        TRY(probe_representation(x->learner, x->first_class, t + 1, hooks, &extras->reading));
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

/* The network that forward transfer is measured against. A step that goes on has it already. */
static enum der_status measure_reference(struct experiment *x, int t, int n_new,
                                         const struct train_hooks *hooks,
                                         struct probe_reference *reference)
{
    if (!x->from) {
        TRY(probe_reference(x->learner, n_new, hooks, reference));
        x->reference[t] = reference->ideal;
        x->reference_own = reference->own;
    }
    *reference = (struct probe_reference){.ideal = x->reference[t], .own = x->reference_own};
    return DER_OK;
}

static enum der_status run_step(struct experiment *x, int t, int n_new, struct step_report *report)
{
    struct train_hooks hooks = {
        .progress = on_progress, .epoch_done = on_epoch_done, .cancelled = is_cancelled, .user = x};
    struct extras extras;
    struct step_record record = {.report = report,
                                 .metrics = x->metrics,
                                 .learner = x->learner,
                                 .first_class = x->first_class};
    *report = (struct step_report){.step = t + 1, .n_steps = x->n_steps};
    if (wants(x, MEASURE_TRANSFER) && t > 0 && compares_steps(x)) {
        TRY(measure_reference(x, t, n_new, &hooks, &extras.reference));
        record.reference = &extras.reference;
    }
    x->ms_per_iter = NAN;
    double start = clock_seconds();
    TRY(learner_resume_step(x->learner, n_new, x->from, &hooks));
    state_close(x->from);
    x->from = NULL;
    TRY(test_step(x, &hooks, report));
    report->seconds = clock_seconds() - start;
    TRY(measure_extras(x, t, &hooks, &extras, &record));
    record.ms_per_iter = x->ms_per_iter;
    record.peak_bytes = peak_bytes();
    int64_t *confusion;
    enum der_status status = count_confusion(x, t + 1, &confusion);
    record.confusion = confusion;
    if (status == DER_OK)
        status = write_record(x, record_step(&record));
    mem_free(&x->ctx->mem, confusion);
    return status;
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
    if (wants(x, MEASURE_REPRESENTATION) || wants(x, MEASURE_TRANSFER))
        summary->bound = x->bound_sum / x->metrics->n_steps;
    if (compares_steps(x) && (wants(x, MEASURE_REPRESENTATION) || wants(x, MEASURE_TRANSFER)))
        summary->bwt = transfer_backward(x->representation, n);
    if (compares_steps(x) && wants(x, MEASURE_TRANSFER))
        summary->fwt = transfer_forward(x->representation, x->reference, n);
    summary->seconds = clock_seconds() - x->start;
}

/* The last line of metrics.jsonl is written before the last state, which is the one that says "finished". */
static enum der_status end_step(struct experiment *x, struct experiment_summary *summary)
{
    const struct experiment_hooks *hooks = &x->options.hooks;
    if (x->step == x->n_steps) {
        summarise(x, summary);
        TRY(write_record(x, record_end(summary)));
    }
    TRY(experiment_save_step(x));
    if (hooks->step)
        hooks->step(hooks->user, &summary->last);
    return DER_OK;
}

static enum der_status run_steps(struct experiment *x, struct experiment_summary *summary)
{
    int n_new = 0;
    int n_done = x->step;
    if (x->from && x->from->state.point.phase == PHASE_BETWEEN) {
        state_close(x->from); /* the next step begins afresh */
        x->from = NULL;
    }
    for (int t = 0; t < x->n_steps; t++) {
        n_new += config_step_classes(&x->options.config, x->set->n_classes, t);
        if (t < experiment_first_step(x))
            continue;
        if (t >= n_done) {
            x->step = t;
            TRY(run_step(x, t, n_new, &summary->last));
            x->step = t + 1;
            TRY(end_step(x, summary));
        }
        n_new = 0;
    }
    return DER_OK;
}

/* ---- beginning, or going on ------------------------------------------------------------------------ */

/* A run that was killed as it put its last files in place. */
static enum der_status settle(struct experiment *x)
{
    struct run_folder *folder;
    struct state_file *state;
    TRY(run_folder_reopen(x->ctx, NULL, x->options.out, &folder, &state));
    state_close(state);
    run_folder_close(folder);
    return DER_OK;
}

static bool is_same_name(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The data that a finished run is given. Under the name that it was started with they are believed, since nothing
 * will be read of them, and opening a large set takes its time; under another they are compared. */
static enum der_status check_given_data(struct experiment *x)
{
    const struct experiment_options *o = &x->options;
    if (is_same_name(o->data, x->record.data) && is_same_name(o->class_list, x->record.class_list))
        return DER_OK;
    return experiment_open_data(x);
}

/* A finished run says what it found; nothing of it is touched that has its place. */
static enum der_status recall(struct experiment *x, struct experiment_summary *summary)
{
    struct state_file *file;
    bool is_whole = true;
    TRY(run_folder_peek(x->ctx, x->options.out, &file));
    if (file && file->state.point.phase == PHASE_FINISHED) {
        summary->was_finished = true;
        summary->last.step = summary->last.n_steps = file->state.n_steps;
        experiment_report(file->state.metrics, &summary->last);
    }
    state_close(file);
    if (!summary->was_finished)
        return DER_OK;
    TRY(check_given_data(x));
    TRY(run_folder_is_whole(x->ctx, x->options.out, &is_whole));
    return is_whole ? DER_OK : settle(x);
}

/* Completes the options of a run that goes on by what it was started with. */
static enum der_status read_record(struct experiment *x)
{
    struct experiment_options *o = &x->options;
    bool has_run;
    if (o->resume && !o->out)
        return ctx_fail(x->ctx, DER_ARG, "to resume a run, its folder is needed");
    if (!o->out)
        return DER_OK;
    TRY(run_folder_has_run(x->ctx, o->out, &has_run));
    if (!o->resume) /* told before the data are opened, which may take a while */
        return has_run ? run_folder_refuse(x->ctx, o->out) : DER_OK;
    if (!has_run && !o->data)
        return ctx_fail(x->ctx, DER_ARG,
                        "%s holds no run to resume, and a data set to begin one is missing",
                        o->out);
    if (!has_run) {
        ctx_log(x->ctx, DER_LOG_INFO, "%s holds no run yet: it begins now", o->out);
        return DER_OK;
    }
    TRY(run_record_read(x->ctx, o->out, &x->record));
    TRY(run_record_check(x->ctx, &x->record, o));
    run_record_compare_versions(x->ctx, &x->record, o->out);
    run_record_warn_moved(x->ctx, &x->record, o);
    x->is_moved = run_record_is_moved(&x->record, o);
    o->config = x->record.config;
    o->backend = o->backend ? o->backend : x->record.device;
    o->data = o->data ? o->data : x->record.data;
    o->class_list = o->class_list ? o->class_list : x->record.class_list;
    o->init = o->init ? o->init : x->record.init;
    return DER_OK;
}

static enum der_status run(struct experiment *x, struct experiment_summary *summary)
{
    TRY(read_record(x));
    if (x->record.root)
        TRY(recall(x, summary));
    if (summary->was_finished)
        return DER_OK;
    if (x->options.out && !x->record.root)
        TRY(record_check_names(x->ctx, &x->options));
    TRY(experiment_open(x));
    return run_steps(x, summary);
}

enum der_status experiment_run(struct der_ctx *ctx, const struct experiment_options *options,
                               struct experiment_summary *out)
{
    struct experiment x = {.ctx = ctx, .options = *options, .start = clock_seconds()};
    x.saved = x.start;
    *out = (struct experiment_summary){0};
    enum der_status status = run(&x, out);
    /* What cannot begin must not be in the way of another try; what was stopped is to be resumed. */
    if (status != DER_OK && status != DER_CANCELLED)
        run_folder_withdraw(x.folder);
    experiment_close(&x);
    return status;
}
