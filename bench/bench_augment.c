/*
 * What augmentation costs beside the training it feeds: milliseconds of making one batch of CIFAR
 * images, without loader threads, and of one training iteration, taking turns in one process.
 *
 * The images are procedural and lie in memory, as those of CIFAR do; the work does not depend on
 * what they show.
 */
#include "bench.h"

#include "data/loader.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 15, BATCHES_PER_ROUND = 8, STEPS_PER_ROUND = 1, N_SAMPLES = 5000 };

struct augmenting {
    struct dataset *set;
    struct class_order *order;
    struct data_view *view;
    struct loader *loader;
    struct backend *be;
    struct param_set *extractor, *head;
    struct bench_data data;
    struct program *program;
    struct sequence *sequence;
};

static enum der_status data_init(struct augmenting *a, struct der_ctx *ctx, int batch)
{
    TRY(dataset_open(ctx, "synth:classes=10,train=500,test=1,size=32", &a->set));
    TRY(order_new(ctx, "seed:1", a->set->n_classes, &a->order));
    TRY(view_classes(ctx, &a->set->part[DATA_TRAIN], a->order, 0, a->set->n_classes, &a->view));
    struct loader_options options = {.set = a->set,
                                     .view = a->view,
                                     .augment = augment_preset("cifar100-train"),
                                     .split = DATA_TRAIN,
                                     .mode = LOADER_TRAIN,
                                     .batch = batch,
                                     .seed = ctx->seed};
    return loader_new(ctx, &options, &a->loader);
}

static enum der_status step_init(struct augmenting *a, struct der_ctx *ctx,
                                 const struct bench_options *o)
{
    struct resnet_spec spec;
    TRY(resnet_spec_init(ctx, &spec, o->model, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE, o->width));
    TRY(backend_open(ctx, o->backend, NULL, &a->be));
    TRY(bench_extractor(a->be, &spec, true, &a->extractor));
    TRY(bench_head(a->be, resnet_feature_dim(&spec), true, &a->head));
    TRY(bench_data_init(&a->data, a->be, o->batch));
    TRY(bench_compile(a->be, &spec, a->extractor, a->head, &a->data, o->batch, BENCH_TRAINING,
                      &a->program));
    struct sequence_item item = {.program = a->program};
    return sequence_new(a->be, &item, 1, &a->sequence);
}

static void augmenting_fini(struct augmenting *a)
{
    sequence_free(a->sequence);
    program_free(a->program);
    bench_data_fini(&a->data);
    param_set_free(a->extractor);
    param_set_free(a->head);
    backend_close(a->be);
    loader_free(a->loader);
    view_free(a->view);
    order_free(a->order);
    dataset_free(a->set);
}

/* Milliseconds of a batch, laying out the epoch included as its share of a whole epoch. */
static enum der_status time_batches(struct augmenting *a, uint32_t epoch, double *ms)
{
    const struct batch *batch;
    double since = bench_clock();
    TRY(loader_start(a->loader, epoch, 0));
    double start = bench_clock() - since;
    since = bench_clock();
    for (int i = 0; i < BATCHES_PER_ROUND; i++)
        TRY(loader_next(a->loader, &batch));
    *ms = 1e3 *
          ((bench_clock() - since) / BATCHES_PER_ROUND + start / (double)loader_batches(a->loader));
    return DER_OK;
}

static enum der_status time_steps(struct augmenting *a, double *ms)
{
    float loss;
    double since = bench_clock();
    for (int i = 0; i < STEPS_PER_ROUND; i++)
        TRY(sequence_run(a->sequence));
    TRY(buffer_read(a->data.loss, 0, &loss, sizeof loss));
    *ms = 1e3 * (bench_clock() - since) / STEPS_PER_ROUND;
    return DER_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

static enum der_status measure(struct augmenting *a)
{
    double batch_ms[ROUNDS];
    double step_ms[ROUNDS];
    TRY(time_batches(a, 0, &batch_ms[0]));
    TRY(time_steps(a, &step_ms[0]));
    for (int i = 0; i < ROUNDS; i++) {
        TRY(time_batches(a, (uint32_t)i + 1, &batch_ms[i]));
        TRY(time_steps(a, &step_ms[i]));
    }
    printf("{\"augment_ms\": %.4f, \"step_ms\": %.4f}\n", median(batch_ms, ROUNDS),
           median(step_ms, ROUNDS));
    return DER_OK;
}

enum der_status bench_augment(struct der_ctx *ctx, const struct bench_options *options)
{
    if (options->batch > N_SAMPLES / BATCHES_PER_ROUND)
        return ctx_fail(ctx, DER_ARG, "batches of %d images, want at most %d", options->batch,
                        N_SAMPLES / BATCHES_PER_ROUND);
    struct augmenting a = {0};
    enum der_status status = data_init(&a, ctx, options->batch);
    if (status == DER_OK)
        status = step_init(&a, ctx, options);
    if (status == DER_OK)
        status = measure(&a);
    augmenting_fini(&a);
    return status;
}
