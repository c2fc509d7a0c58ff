/*
 * How long it takes to compile all programs of one step of DER with t extractors.
 *
 * t - 1 frozen extractors run folded, for the batch, for the tail of the training set and for the
 * tail of the test set; the new one is trained on batch and tail and evaluated, folded, on batch
 * and test tail. Where answers are more precise than training, frozen extractors have a program for
 * batches of either kind. They share one set of parameters here, which changes nothing for the
 * compiler and spares the memory; their programs are all separate.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

/* CIFAR-100 in ten steps: 5000 new pictures and 2000 of the past, 10,000 to test on. */
enum { SIZE_BATCH, SIZE_TRAIN_TAIL, SIZE_TEST_TAIL, N_SIZES };
enum { MAX_EXTRACTORS = 200, MAX_PROGRAMS = (N_SIZES + 1) * MAX_EXTRACTORS + 4 };

struct step {
    struct backend *be;
    struct resnet_spec spec;
    struct param_set *frozen, *trained, *head;
    int size[N_SIZES];
    struct bench_data data[N_SIZES];
    struct program *programs[MAX_PROGRAMS];
    int n_programs;
};

static enum der_status step_init(struct step *s, struct der_ctx *ctx, const struct bench_options *o)
{
    const struct backend_options options = {.precision = o->precision, .tuning = o->tuning};
    memset(s, 0, sizeof *s);
    s->size[SIZE_BATCH] = o->batch;
    s->size[SIZE_TRAIN_TAIL] = 7000 % o->batch ? 7000 % o->batch : o->batch;
    s->size[SIZE_TEST_TAIL] = 10000 % o->batch ? 10000 % o->batch : o->batch;
    TRY(resnet_spec_init(ctx, &s->spec, o->model, 3, BENCH_IMAGE_SIZE, BENCH_IMAGE_SIZE, o->width));
    TRY(backend_open(ctx, o->backend, &options, &s->be));
    TRY(bench_extractor(s->be, &s->spec, false, &s->frozen));
    TRY(bench_extractor(s->be, &s->spec, true, &s->trained));
    TRY(bench_head(s->be, resnet_feature_dim(&s->spec), true, &s->head));
    for (int i = 0; i < N_SIZES; i++)
        TRY(bench_data_init(&s->data[i], s->be, s->size[i]));
    return DER_OK;
}

static void step_fini(struct step *s)
{
    for (int i = 0; i < s->n_programs; i++)
        program_free(s->programs[i]);
    for (int i = 0; i < N_SIZES; i++)
        bench_data_fini(&s->data[i]);
    param_set_free(s->frozen);
    param_set_free(s->trained);
    param_set_free(s->head);
    backend_close(s->be);
}

static enum der_status compile(struct step *s, struct param_set *extractor, int size,
                               enum bench_use use)
{
    struct program **program = &s->programs[s->n_programs];
    enum der_status status = bench_compile(s->be, &s->spec, extractor, s->head, &s->data[size],
                                           s->size[size], use, program);
    s->n_programs += *program != NULL;
    return status;
}

static enum der_status compile_frozen(struct step *s)
{
    TRY(compile(s, s->frozen, SIZE_BATCH, BENCH_FROZEN));
    TRY(compile(s, s->frozen, SIZE_TRAIN_TAIL, BENCH_FROZEN));
    if (s->be->is_coarse)
        TRY(compile(s, s->frozen, SIZE_BATCH, BENCH_ANSWERS));
    return compile(s, s->frozen, SIZE_TEST_TAIL, BENCH_ANSWERS);
}

static enum der_status compile_all(struct step *s, int n_extractors)
{
    for (int i = 1; i < n_extractors; i++)
        TRY(compile_frozen(s));
    TRY(compile(s, s->trained, SIZE_BATCH, BENCH_TRAINING));
    TRY(compile(s, s->trained, SIZE_TRAIN_TAIL, BENCH_TRAINING));
    TRY(compile(s, s->trained, SIZE_BATCH, BENCH_ANSWERS));
    return compile(s, s->trained, SIZE_TEST_TAIL, BENCH_ANSWERS);
}

enum der_status bench_step(struct der_ctx *ctx, const struct bench_options *options)
{
    if (options->n_extractors < 1 || options->n_extractors > MAX_EXTRACTORS)
        return ctx_fail(ctx, DER_ARG, "%d extractors, want 1 to %d", options->n_extractors,
                        MAX_EXTRACTORS);
    struct step *s = mem_alloc(&ctx->mem, 1, sizeof *s);
    if (!s)
        return ctx_nomem(ctx);
    enum der_status status = step_init(s, ctx, options);
    double since = bench_clock();
    if (status == DER_OK)
        status = compile_all(s, options->n_extractors);
    if (status == DER_OK)
        printf("{\"seconds\": %.4f, \"programs\": %d}\n", bench_clock() - since, s->n_programs);
    step_fini(s);
    mem_free(&ctx->mem, s);
    return status;
}
