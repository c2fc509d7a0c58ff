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

static enum der_status count_batch(const struct stage_program *program, const struct batch *batch,
                                   int32_t *ranks, struct evaluation *e)
{
    TRY(buffer_read(program->rank, 0, ranks, (size_t)batch->n * sizeof *ranks));
    for (int i = 0; i < batch->n; i++) {
        int32_t label = batch->labels[i];
        assert(label >= 0 && label < e->n_classes);
        e->n[label]++;
        e->top1[label] += ranks[i] == 0;
        e->top5[label] += ranks[i] < TOP;
    }
    return DER_OK;
}

static enum der_status run_batches(struct der_ctx *ctx, struct loader *loader,
                                   const struct stage_program *program,
                                   const struct augment_spec *spec, const struct train_hooks *hooks,
                                   int32_t *ranks, struct evaluation *e)
{
    size_t image_floats = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    TRY(loader_start(loader, 0, 0));
    for (;;) {
        const struct batch *batch;
        if (train_cancelled(hooks))
            return ctx_fail(ctx, DER_CANCELLED, "evaluation stopped on request");
        TRY(loader_next(loader, &batch));
        if (!batch)
            return DER_OK;
        size_t n = (size_t)batch->n;
        TRY(buffer_write(program->image, 0, batch->images, n * image_floats * sizeof(float)));
        TRY(buffer_write(program->labels, 0, batch->labels, n * sizeof *batch->labels));
        TRY(sequence_run(program->sequence));
        TRY(count_batch(program, batch, ranks, e));
    }
}

enum der_status evaluate(struct der_ctx *ctx, const struct stage_ops *ops, void *self,
                         const struct loader_options *data, int n_classes,
                         const struct train_hooks *hooks, struct evaluation *out)
{
    assert(data->mode == LOADER_EVAL);
    TRY(evaluation_init(ctx, n_classes, out));
    struct stage_program program;
    TRY(ops->program(self, data->batch, &program));
    assert(program.rank);
    int32_t *ranks = mem_alloc(&ctx->mem, (size_t)data->batch, sizeof *ranks);
    if (!ranks)
        return ctx_nomem(ctx);
    struct loader *loader;
    enum der_status status = loader_new(ctx, data, &loader);
    if (status == DER_OK)
        status = run_batches(ctx, loader, &program, data->augment, hooks, ranks, out);
    loader_free(loader);
    mem_free(&ctx->mem, ranks);
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
