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

/* One test: what is run, and what of a batch is read back. */
struct test {
    struct der_ctx *ctx;
    const struct evaluate_options *options;
    struct stage_program program;
    int32_t *ranks; /* [batch] */
    float *logits;  /* [batch, n_logits], or NULL */
    struct evaluation *result;
};

static enum der_status count_batch(const struct test *test, const struct batch *batch)
{
    struct evaluation *e = test->result;
    TRY(buffer_read(test->program.rank, 0, test->ranks, (size_t)batch->n * sizeof *test->ranks));
    for (int i = 0; i < batch->n; i++) {
        int32_t label = batch->labels[i];
        assert(label >= 0 && label < e->n_classes);
        e->n[label]++;
        e->top1[label] += test->ranks[i] == 0;
        e->top5[label] += test->ranks[i] < TOP;
    }
    return DER_OK;
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

static enum der_status keep_batch(const struct test *test, const struct batch *batch)
{
    struct evaluation *e = test->result;
    size_t row = (size_t)test->program.n_logits;
    size_t n = (size_t)batch->n;
    TRY(buffer_read(test->program.logits, 0, test->logits, n * row * sizeof *test->logits));
    for (size_t i = 0; i < n; i++) {
        struct prediction *p = &e->predictions[e->n_predictions++];
        *p = (struct prediction){.sample = batch->samples[i], .label = batch->labels[i]};
        guess(test->logits + i * row, (int)row, test->options->temperature, p);
    }
    return DER_OK;
}

static enum der_status run_batches(struct test *test, struct loader *loader,
                                   const struct train_hooks *hooks)
{
    const struct augment_spec *spec = test->options->data->augment;
    const struct stage_program *program = &test->program;
    size_t image_floats = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    TRY(loader_start(loader, 0, 0));
    for (;;) {
        const struct batch *batch;
        if (train_cancelled(hooks))
            return ctx_fail(test->ctx, DER_CANCELLED, "evaluation stopped on request");
        TRY(loader_next(loader, &batch));
        if (!batch)
            return DER_OK;
        size_t n = (size_t)batch->n;
        TRY(buffer_write(program->image, 0, batch->images, n * image_floats * sizeof(float)));
        TRY(buffer_write(program->labels, 0, batch->labels, n * sizeof *batch->labels));
        TRY(sequence_run(program->sequence));
        TRY(count_batch(test, batch));
        if (test->logits)
            TRY(keep_batch(test, batch));
    }
}

/* Room for what is read back, and for the predictions where they are wanted. */
static enum der_status reserve(struct test *test)
{
    const struct loader_options *data = test->options->data;
    struct mem *mem = &test->ctx->mem;
    size_t batch = (size_t)data->batch;
    test->ranks = mem_alloc(mem, batch, sizeof *test->ranks);
    if (!test->ranks)
        return ctx_nomem(test->ctx);
    if (!test->program.logits)
        return DER_OK;
    struct evaluation *e = test->result;
    test->logits = mem_alloc(mem, batch * (size_t)test->program.n_logits, sizeof *test->logits);
    e->predictions = mem_alloc(mem, (size_t)data->view->n, sizeof *e->predictions);
    return test->logits && e->predictions ? DER_OK : ctx_nomem(test->ctx);
}

static enum der_status run_test(struct test *test, const struct train_hooks *hooks)
{
    struct loader *loader;
    TRY(reserve(test));
    TRY(loader_new(test->ctx, test->options->data, &loader));
    enum der_status status = run_batches(test, loader, hooks);
    loader_free(loader);
    return status;
}

enum der_status evaluate(struct der_ctx *ctx, const struct evaluate_options *options,
                         const struct train_hooks *hooks, struct evaluation *out)
{
    struct test test = {.ctx = ctx, .options = options, .result = out};
    assert(options->data->mode == LOADER_EVAL);
    TRY(evaluation_init(ctx, options->n_classes, out));
    TRY(options->ops->program(options->self, options->data->batch, &test.program));
    assert(test.program.rank);
    enum der_status status = run_test(&test, hooks);
    mem_free(&ctx->mem, test.ranks);
    mem_free(&ctx->mem, test.logits);
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
