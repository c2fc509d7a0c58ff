/*
 * der_train: opens the data, builds the network, trains, tests.
 */
#include <der/train.h>

#include "core/clock.h"
#include "data/defaults.h"
#include "data/order.h"
#include "train/supervised.h"

#include <string.h>

static const double DEFAULT_HOLDOUT = 0.2;
static const float MOMENTUM = 0.9f;
static const float DECAY = 5e-4f;

enum { DEFAULT_BATCH = 128, TEST_BATCH = 256 };

/* Everything a call opens, so that one function closes it. */
struct job {
    struct der_ctx *ctx;
    struct der_train_options options; /* defaults filled in */
    struct dataset *set;
    struct class_order *order;
    struct data_view *train, *test;
    enum data_split test_split;
    struct augment_spec train_augment, test_augment;
    struct backend *be;
    struct supervised *model;
};

static void job_fini(struct job *job)
{
    supervised_free(job->model);
    backend_close(job->be);
    view_free(job->train);
    view_free(job->test);
    order_free(job->order);
    dataset_free(job->set);
}

static enum der_status fill_defaults(struct der_ctx *ctx, struct der_train_options *o)
{
    if (!o->data)
        return ctx_fail(ctx, DER_ARG, "no data set was given");
    if (!o->network)
        o->network = "resnet18-cifar";
    if (!o->backend)
        o->backend = backend_list()[0]->name;
    if (o->width == 0.0)
        o->width = 1.0;
    if (o->batch == 0)
        o->batch = DEFAULT_BATCH;
    if (o->lr == 0.0)
        o->lr = schedule_cifar().lr;
    if (o->epochs == 0)
        o->epochs = schedule_cifar().epochs;
    if (o->loader_threads == 0)
        o->loader_threads = 1;
    if (o->epochs < 1 || o->batch < 2 || !(o->lr > 0.0) || o->per_class < 0 ||
        !(o->validation >= 0.0 && o->validation < 1.0))
        return ctx_fail(
            ctx, DER_ARG,
            "epochs (%d) and the rate (%g) must be positive, a batch (%d) holds two images "
            "or more, a held-out share (%g) lies in [0, 1)",
            o->epochs, o->lr, o->batch, o->validation);
    return DER_OK;
}

/* Keeps the first `most` images of every label. */
static void limit_view(struct data_view *view, int64_t *counts, int n_classes, int64_t most)
{
    memset(counts, 0, (size_t)n_classes * sizeof *counts);
    int64_t kept = 0;
    for (int64_t i = 0; i < view->n; i++)
        if (counts[view->items[i].label]++ < most)
            view->items[kept++] = view->items[i];
    view->n = kept;
}

static enum der_status natural_order(struct job *job)
{
    int n = job->set->n_classes;
    int32_t *classes = mem_alloc(&job->ctx->mem, (size_t)n, sizeof *classes);
    if (!classes)
        return ctx_nomem(job->ctx);
    for (int i = 0; i < n; i++)
        classes[i] = i;
    enum der_status status = order_from_array(job->ctx, job->set->path, classes, n, &job->order);
    mem_free(&job->ctx->mem, classes);
    return status;
}

static enum der_status limit_training(struct job *job)
{
    if (job->options.per_class == 0)
        return DER_OK;
    int n = job->set->n_classes;
    int64_t *counts = mem_alloc(&job->ctx->mem, (size_t)n, sizeof *counts);
    if (!counts)
        return ctx_nomem(job->ctx);
    limit_view(job->train, counts, n, job->options.per_class);
    mem_free(&job->ctx->mem, counts);
    return DER_OK;
}

static enum der_status open_views(struct job *job)
{
    struct dataset *set = job->set;
    int n = set->n_classes;
    TRY(natural_order(job));
    double share = job->options.validation;
    if (share == 0.0 && set->part[DATA_TEST].n == 0)
        share = DEFAULT_HOLDOUT;
    struct data_view *all;
    TRY(view_classes(job->ctx, &set->part[DATA_TRAIN], job->order, 0, n, &all));
    if (share > 0.0) {
        enum der_status status =
            view_holdout(job->ctx, all, share, job->ctx->seed, &job->train, &job->test);
        view_free(all);
        job->test_split = DATA_TRAIN;
        TRY(status);
        return limit_training(job);
    }
    job->train = all;
    job->test_split = DATA_TEST;
    TRY(view_classes(job->ctx, &set->part[DATA_TEST], job->order, 0, n, &job->test));
    return limit_training(job);
}

static enum der_status open_model(struct job *job)
{
    const struct der_train_options *o = &job->options;
    TRY(augment_defaults(job->set, true, &job->train_augment));
    TRY(augment_defaults(job->set, false, &job->test_augment));
    const struct augment_spec *image = &job->train_augment;
    struct supervised_options model = {.n_classes = job->set->n_classes,
                                       .momentum = MOMENTUM,
                                       .decay = DECAY,
                                       .seed = job->ctx->seed};
    TRY(resnet_spec_init(job->ctx, &model.spec, o->network, image->channels, image->height,
                         image->width, o->width));
    TRY(backend_open(job->ctx, o->backend, NULL, &job->be));
    return supervised_new(job->be, &model, &job->model);
}

static struct loader_options loader_of(const struct job *job, bool training)
{
    bool skip = job->options.bad_images == DER_BAD_IMAGES_SKIP;
    return (struct loader_options){.set = job->set,
                                   .view = training ? job->train : job->test,
                                   .augment = training ? &job->train_augment : &job->test_augment,
                                   .split = training ? DATA_TRAIN : job->test_split,
                                   .mode = training ? LOADER_TRAIN : LOADER_EVAL,
                                   .bad_images = skip ? BAD_IMAGES_SKIP : BAD_IMAGES_STOP,
                                   .batch = training ? job->options.batch : TEST_BATCH,
                                   .threads = job->options.loader_threads,
                                   .seed = job->ctx->seed};
}

static void pass_progress(void *user, const struct train_progress *p)
{
    const struct job *job = user;
    if (!job->options.progress)
        return;
    struct der_progress progress = {.stage = p->stage,
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
    job->options.progress(job->options.progress_user, &progress);
}

static bool ask_cancelled(void *user)
{
    const struct job *job = user;
    return job->options.cancelled && job->options.cancelled(job->options.cancelled_user);
}

static enum der_status run(struct job *job, struct der_train_result *result)
{
    TRY(fill_defaults(job->ctx, &job->options));
    struct dataset_options which = {.class_list = job->options.class_list,
                                    .first_classes = job->options.first_classes};
    TRY(dataset_open_with(job->ctx, job->options.data, &which, &job->set));
    TRY(open_views(job));
    TRY(open_model(job));

    struct schedule full = schedule_cifar();
    full.lr = job->options.lr;
    struct schedule schedule = schedule_scaled(&full, job->options.epochs);
    struct train_hooks hooks = {.progress = pass_progress, .cancelled = ask_cancelled, .user = job};
    struct loader_options train = loader_of(job, true);
    struct loader_options test = loader_of(job, false);
    TRY(supervised_train(job->model, "training", &schedule, &train, &hooks));

    struct evaluation evaluation;
    enum der_status status = supervised_test(job->model, &test, &hooks, &evaluation);
    int n_classes = job->set->n_classes;
    if (status == DER_OK)
        *result =
            (struct der_train_result){.n_classes = n_classes,
                                      .n_train = job->train->n,
                                      .n_test = job->test->n,
                                      .parameters = resnet_count_params(&job->model->options.spec),
                                      .top1 = evaluation_top1(&evaluation, 0, n_classes),
                                      .top5 = evaluation_top5(&evaluation, 0, n_classes),
                                      .on_validation = job->test_split == DATA_TRAIN};
    evaluation_fini(job->ctx, &evaluation);
    return status;
}

enum der_status der_train(struct der_ctx *ctx, const struct der_train_options *options,
                          struct der_train_result *result)
{
    double start = clock_seconds();
    struct job job = {.ctx = ctx, .options = *options};
    *result = (struct der_train_result){0};
    enum der_status status = run(&job, result);
    job_fini(&job);
    result->seconds = clock_seconds() - start;
    return status;
}
