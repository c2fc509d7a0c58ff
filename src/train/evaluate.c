#include "train/evaluate.h"

#include <assert.h>
#include <math.h>

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
    mem_free(&ctx->mem, evaluation->predictions);
    *evaluation = (struct evaluation){0};
}

/* One test: what is run, and what of it is read back. */
struct test {
    struct der_ctx *ctx;
    const struct evaluation_options *options;
    struct stage_program program;
    struct feeder *feeder;
    float *logits; /* [batch, n_logits], or NULL */
    int64_t n_batches;
    struct evaluation *result;
};

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

static enum der_status count_all(const struct test *test)
{
    struct mem *mem = &test->ctx->mem;
    int64_t n = test->n_batches * test->options->data->batch;
    int32_t *ranks = mem_alloc(mem, (size_t)n, sizeof *ranks);
    if (!ranks)
        return ctx_nomem(test->ctx);
    enum der_status status = feeder_ranks(test->feeder, 0, test->n_batches, ranks);
    if (status == DER_OK)
        count_rows(feeder_labels(test->feeder), ranks, n, test->result);
    mem_free(mem, ranks);
    return status;
}

/* The first of the largest logits, as op RANK has it, and p = 1 / sum_k exp((z_k - z_max) / T). */
static void guess(const float *logits, int n, double temperature, struct prediction *out)
{
    int best = 0;
    double sum = 0.0;
    for (int k = 1; k < n; k++)
        if (logits[k] > logits[best])
            best = k;
    for (int k = 0; k < n; k++)
        sum += exp(((double)logits[k] - (double)logits[best]) / temperature);
    out->guess = best;
    out->confidence = isfinite(sum) ? (float)(1.0 / sum) : 0.0F;
}

/* Of the batch that was run last, for which this waits. */
static enum der_status keep_batch(const struct test *test, int rows)
{
    struct evaluation *e = test->result;
    int64_t first = test->n_batches * test->options->data->batch;
    const int32_t *labels = feeder_labels(test->feeder) + first;
    const int64_t *samples = feeder_samples(test->feeder) + first;
    size_t row = (size_t)test->program.n_logits;
    size_t n = (size_t)rows;
    TRY(buffer_read(test->program.logits, 0, test->logits, n * row * sizeof *test->logits));
    for (size_t i = 0; i < n; i++) {
        struct prediction *p = &e->predictions[e->n_predictions++];
        *p = (struct prediction){.sample = samples[i], .label = labels[i]};
        guess(test->logits + i * row, (int)row, test->options->temperature, p);
    }
    return DER_OK;
}

/* One batch; *rows is 0 when there was none left. */
static enum der_status run_next(struct feeder *feeder, const struct stage_program *program,
                                const struct train_hooks *hooks, struct der_ctx *ctx, int *rows)
{
    if (train_cancelled(hooks))
        return ctx_fail(ctx, DER_CANCELLED, "evaluation stopped on request");
    TRY(feeder_next(feeder, rows));
    return *rows > 0 ? feeder_run(feeder, program) : DER_OK;
}

static void tell(const struct train_hooks *hooks, const struct feeder *feeder, int rows,
                 int64_t *done)
{
    *done += rows;
    if (hooks && hooks->tested)
        hooks->tested(hooks->user, *done, feeder_images(feeder));
}

enum der_status evaluate_batches(struct feeder *feeder, const struct stage_program *program,
                                 const struct train_hooks *hooks, struct der_ctx *ctx,
                                 int64_t *n_batches)
{
    int64_t done = 0;
    *n_batches = 0;
    TRY(feeder_start(feeder, 0, NULL));
    for (;; ++*n_batches) {
        int rows;
        TRY(run_next(feeder, program, hooks, ctx, &rows));
        if (rows == 0)
            return DER_OK;
        tell(hooks, feeder, rows, &done);
    }
}

static enum der_status run_and_keep(struct test *test, const struct train_hooks *hooks)
{
    int64_t done = 0;
    TRY(feeder_start(test->feeder, 0, NULL));
    for (;; test->n_batches++) {
        int rows;
        TRY(run_next(test->feeder, &test->program, hooks, test->ctx, &rows));
        if (rows == 0)
            return DER_OK;
        TRY(keep_batch(test, rows));
        tell(hooks, test->feeder, rows, &done);
    }
}

static enum der_status reserve_predictions(struct test *test)
{
    const struct loader_options *data = test->options->data;
    struct mem *mem = &test->ctx->mem;
    struct evaluation *e = test->result;
    size_t values = (size_t)data->batch * (size_t)test->program.n_logits;
    test->logits = mem_alloc(mem, values, sizeof *test->logits);
    e->predictions = mem_alloc(mem, (size_t)data->view->n, sizeof *e->predictions);
    return test->logits && e->predictions ? DER_OK : ctx_nomem(test->ctx);
}

static enum der_status run_test(struct test *test, const struct train_hooks *hooks)
{
    if (test->options->temperature > 0.0) {
        TRY(reserve_predictions(test));
        TRY(run_and_keep(test, hooks));
    } else {
        TRY(evaluate_batches(test->feeder, &test->program, hooks, test->ctx, &test->n_batches));
    }
    return count_all(test);
}

enum der_status evaluate(const struct evaluation_options *options, int n_classes,
                         const struct train_hooks *hooks, struct evaluation *out)
{
    struct test test = {.ctx = options->be->ctx, .options = options, .result = out};
    const struct feeder_options feeding = {
        .be = options->be, .resident = options->resident, .data = options->data, .ranks = true};
    assert(options->data->mode == LOADER_EVAL);
    TRY(evaluation_init(test.ctx, n_classes, out));
    TRY(options->ops->program(options->self, options->data->batch, &test.program));
    assert(test.program.rank);
    assert(options->temperature == 0.0 || test.program.logits);
    TRY(feeder_new(test.ctx, &feeding, &test.feeder));
    enum der_status status = run_test(&test, hooks);
    feeder_free(test.feeder);
    mem_free(&test.ctx->mem, test.logits);
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
