#include "train/evaluate.h"

#include <assert.h>

enum { TOP = 5 };

static enum der_status evaluation_init(struct der_ctx *ctx, int n_classes, struct evaluation *e)
{
    *e = (struct evaluation){.n_classes = n_classes};
    e->n = mem_zalloc(&ctx->mem, (size_t)n_classes, 3 * sizeof *e->n);
    if (!e->n)
        return ctx_nomem(ctx);
    e->top1 = e->n + n_classes;
    e->top5 = e->top1 + n_classes;
    return DER_OK;
}

void evaluation_fini(struct der_ctx *ctx, struct evaluation *evaluation)
{
    mem_free(&ctx->mem, evaluation->n);
    *evaluation = (struct evaluation){0};
}

static void count_rows(const int32_t *labels, const int32_t *ranks, int64_t n, struct evaluation *e)
{
    for (int64_t i = 0; i < n; i++) {
        int32_t label = labels[i];
        if (label < 0)
            continue; /* rows that fill up a batch */
        assert(label < e->n_classes);
        e->n[label]++;
        e->top1[label] += ranks[i] == 0;
        e->top5[label] += ranks[i] < TOP;
    }
}

enum der_status evaluate_batches(struct feeder *feeder, const struct stage_program *program,
                                 const struct train_hooks *hooks, struct der_ctx *ctx,
                                 int64_t *n_batches)
{
    *n_batches = 0;
    TRY(feeder_start(feeder, 0, NULL));
    for (;; ++*n_batches) {
        int rows;
        if (train_cancelled(hooks))
            return ctx_fail(ctx, DER_CANCELLED, "evaluation stopped on request");
        TRY(feeder_next(feeder, &rows));
        if (rows == 0)
            return DER_OK;
        TRY(feeder_run(feeder, program));
    }
}

static enum der_status count_all(struct der_ctx *ctx, const struct feeder *feeder,
                                 int64_t n_batches, int batch, struct evaluation *e)
{
    int64_t n = n_batches * batch;
    int32_t *ranks = mem_alloc(&ctx->mem, (size_t)n, sizeof *ranks);
    if (!ranks)
        return ctx_nomem(ctx);
    enum der_status status = feeder_ranks(feeder, 0, n_batches, ranks);
    if (status == DER_OK)
        count_rows(feeder_labels(feeder), ranks, n, e);
    mem_free(&ctx->mem, ranks);
    return status;
}

enum der_status evaluate(const struct evaluation_options *options, int n_classes,
                         const struct train_hooks *hooks, struct evaluation *out)
{
    struct der_ctx *ctx = options->be->ctx;
    const struct loader_options *data = options->data;
    struct feeder *feeder;
    int64_t n_batches;
    assert(data->mode == LOADER_EVAL);
    TRY(evaluation_init(ctx, n_classes, out));
    struct stage_program program;
    TRY(options->ops->program(options->self, data->batch, &program));
    assert(program.rank);
    const struct feeder_options feeding = {
        .be = options->be, .resident = options->resident, .data = data, .ranks = true};
    TRY(feeder_new(ctx, &feeding, &feeder));
    enum der_status status = evaluate_batches(feeder, &program, hooks, ctx, &n_batches);
    if (status == DER_OK)
        status = count_all(ctx, feeder, n_batches, data->batch, out);
    feeder_free(feeder);
    return status;
}

static double share(const int64_t *hits, const int64_t *n, int first, int last)
{
    int64_t all = 0;
    int64_t right = 0;
    for (int c = first; c < last; c++) {
        all += n[c];
        right += hits[c];
    }
    return all > 0 ? 100.0 * (double)right / (double)all : 0.0;
}

double evaluation_top1(const struct evaluation *evaluation, int first, int last)
{
    return share(evaluation->top1, evaluation->n, first, last);
}

double evaluation_top5(const struct evaluation *evaluation, int first, int last)
{
    return share(evaluation->top5, evaluation->n, first, last);
}
