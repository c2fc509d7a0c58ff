/*
 * der_train: the public face of an experiment.
 */
#include <der/train.h>

#include "api/api_settings.h"
#include "api/api_train.h"
#include "config/preset.h"

/* Without a wish, epochs; on a GPU ten of them may take less time than there is to be lost. */
enum { DEFAULT_SAVE_EVERY = 10, DEFAULT_SAVE_PAUSE = 15 /* s */ };

static struct der_step public_step(const struct step_report *report)
{
    return (struct der_step){.step = report->step,
                             .n_steps = report->n_steps,
                             .n_classes = report->n_classes,
                             .top1 = report->top1,
                             .top5 = report->top5,
                             .avg_top1 = report->avg_top1,
                             .avg_top5 = report->avg_top5,
                             .forgetting = report->forgetting,
                             .params = report->params,
                             .params_total = report->params_total,
                             .avg_params = report->avg_params,
                             .seconds = report->seconds};
}

struct der_progress api_progress(const struct train_progress *p)
{
    return (struct der_progress){.stage = p->stage,
                                 .epoch = p->epoch,
                                 .epochs = p->epochs,
                                 .iteration = p->iteration,
                                 .n_iterations = p->n_iterations,
                                 .epoch_done = p->epoch_done,
                                 .lr = p->lr,
                                 .loss = p->losses[0],
                                 .accuracy = p->accuracy,
                                 .images_per_second = p->images_per_second,
                                 .seconds = p->seconds,
                                 .seconds_left = p->seconds_left};
}

static void pass_progress(void *user, const struct train_progress *p)
{
    const struct der_train_options *options = user;
    struct der_progress progress = api_progress(p);
    if (options->progress)
        options->progress(options->user, &progress);
}

static void pass_step(void *user, const struct step_report *report)
{
    const struct der_train_options *options = user;
    struct der_step step = public_step(report);
    if (options->step)
        options->step(options->user, &step);
}

static bool ask_cancelled(void *user)
{
    const struct der_train_options *options = user;
    return options->cancelled && options->cancelled(options->user);
}

enum precision api_precision(enum der_precision precision)
{
    switch (precision) {
    case DER_PRECISION_TF32:
        return PRECISION_TF32;
    case DER_PRECISION_BF16:
        return PRECISION_BF16;
    default:
        return PRECISION_F32;
    }
}

enum bad_images api_bad_images(enum der_bad_images bad_images)
{
    return bad_images == DER_BAD_IMAGES_SKIP ? BAD_IMAGES_SKIP : BAD_IMAGES_STOP;
}

static int save_every_of(int epochs)
{
    return epochs == 0 ? DEFAULT_SAVE_EVERY : epochs < 0 ? 0 : epochs;
}

static enum der_status check_numbers(struct der_ctx *ctx, const struct der_train_options *o)
{
    const unsigned measures =
        DER_MEASURE_REPRESENTATION | DER_MEASURE_TRANSFER | DER_MEASURE_LATENCY;
    if (o->max_steps < 0 || o->loader_threads < 0)
        return ctx_fail(ctx, DER_ARG,
                        "max_steps and loader_threads are not negative, not %d and %d",
                        o->max_steps, o->loader_threads);
    if ((unsigned)o->precision > DER_PRECISION_BF16)
        return ctx_fail(ctx, DER_ARG, "%d is no precision of enum der_precision",
                        (int)o->precision);
    if ((unsigned)o->bad_images > DER_BAD_IMAGES_SKIP)
        return ctx_fail(ctx, DER_ARG, "%d is none of enum der_bad_images", (int)o->bad_images);
    if (o->measure & ~measures)
        return ctx_fail(ctx, DER_ARG, "%#x has bits that enum der_measure has not", o->measure);
    return DER_OK;
}

enum der_status api_experiment(struct der_ctx *ctx, struct der_train_options *o,
                               struct experiment_options *out)
{
    TRY(check_numbers(ctx, o));
    *out = (struct experiment_options){
        .data = o->data,
        .class_list = o->class_list,
        .out = o->out,
        .resume = o->resume,
        .save_every = save_every_of(o->save_every),
        .save_pause = o->save_every == 0 ? DEFAULT_SAVE_PAUSE : 0,
        .backend = o->backend,
        .backend_options = {.precision = api_precision(o->precision),
                            .deterministic = o->deterministic},
        .bad_images = api_bad_images(o->bad_images),
        .loader_threads = o->loader_threads > 0 ? o->loader_threads : 1,
        .max_steps = o->max_steps,
        .measure = o->measure,
        .hooks = {
            .progress = pass_progress, .step = pass_step, .cancelled = ask_cancelled, .user = o}};
    return DER_OK;
}

enum der_status api_listen(struct der_ctx *ctx, const struct der_train_options *o, bool by_run,
                           struct experiment_options *experiment, struct tensorboard **out)
{
    struct tensorboard_options options = {.folder = o->tensorboard, .by_run = by_run};
    *out = NULL;
    if (!o->tensorboard)
        return DER_OK;
    TRY(tensorboard_open(ctx, &options, out));
    experiment->listener = tensorboard_listener(*out);
    return DER_OK;
}

static enum der_status train(struct der_ctx *ctx, const struct experiment_options *options,
                             struct der_train_result *result)
{
    struct experiment_summary summary;
    TRY(experiment_run(ctx, options, &summary));
    *result = (struct der_train_result){.steps = summary.steps,
                                        .n_classes = summary.n_classes,
                                        .n_train = summary.n_train,
                                        .n_test = summary.n_test,
                                        .on_validation = summary.on_validation,
                                        .last = public_step(&summary.last),
                                        .bwt = summary.bwt,
                                        .fwt = summary.fwt,
                                        .classifier_bound = summary.bound,
                                        .seconds = summary.seconds,
                                        .was_finished = summary.was_finished};
    return DER_OK;
}

enum der_status der_train(struct der_ctx *ctx, const struct der_train_options *options,
                          struct der_train_result *result)
{
    struct der_train_options o = *options;
    struct tensorboard *board;
    *result = (struct der_train_result){0};
    if (!o.resume && (!o.data || !o.settings))
        return ctx_fail(ctx, DER_ARG, "training needs a data set and settings");
    struct experiment_options experiment;
    TRY(api_experiment(ctx, &o, &experiment));
    experiment.stored_settings = !o.settings;
    experiment.init = o.init;
    if (o.settings)
        experiment.config = o.settings->config;
    else
        TRY(config_from_preset(ctx, "custom", METHOD_DER, &experiment.config));
    TRY(api_listen(ctx, &o, false, &experiment, &board));
    enum der_status status = train(ctx, &experiment, result);
    tensorboard_close(board);
    return status;
}
