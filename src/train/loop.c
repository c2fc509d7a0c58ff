#include "train/loop.h"

#include "core/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

/* A cross-entropy this large has nothing to do with learning any more. */
static const double DIVERGED_LOSS = 1e6;

/* How often hooks hear of progress within an epoch. */
static const double PROGRESS_SECONDS = 0.2;

struct run {
    struct der_ctx *ctx;
    const struct stage *stage;
    const struct train_hooks *hooks;
    struct loader *loader;
    int32_t *ranks;       /* [batch] read back */
    double start;         /* clock when the stage began */
    double last_report;   /* clock of the latest progress */
    int64_t images_total; /* seen by this stage so far */
    int64_t iterations;   /* run so far */
    /* sums of this epoch */
    double losses[STAGE_MAX_LOSSES];
    int64_t images, correct, ranked;
};

bool train_cancelled(const struct train_hooks *hooks)
{
    return hooks && hooks->cancelled && hooks->cancelled(hooks->user);
}

/* Adds the losses of one iteration, weighted by its images so that the tail counts as what it is. */
static enum der_status add_losses(struct run *run, const struct stage_program *program,
                                  const struct moment *now, int n)
{
    const struct stage *stage = run->stage;
    float losses[STAGE_MAX_LOSSES];
    if (stage->n_losses == 0)
        return DER_OK;
    TRY(buffer_read(program->losses, 0, losses, (size_t)stage->n_losses * sizeof *losses));
    for (int i = 0; i < stage->n_losses; i++) {
        double loss = (double)losses[i];
        if (!isfinite(loss) || fabs(loss) > DIVERGED_LOSS)
            return ctx_fail(run->ctx, DER_NUMERIC,
                            "%s: loss '%s' is %g in epoch %d, batch %" PRId64 " of %" PRId64
                            " at learning rate %g: training has diverged",
                            stage->name, stage->loss_names[i], loss, now->epoch + 1,
                            now->iteration + 1, now->n_iterations, now->lr);
        run->losses[i] += n * loss;
    }
    return DER_OK;
}

static enum der_status add_accuracy(struct run *run, const struct stage_program *program, int n)
{
    if (!program->rank)
        return DER_OK;
    TRY(buffer_read(program->rank, 0, run->ranks, (size_t)n * sizeof *run->ranks));
    for (int i = 0; i < n; i++)
        run->correct += run->ranks[i] == 0;
    run->ranked += n;
    return DER_OK;
}

static struct train_progress progress_of(const struct run *run, const struct moment *now,
                                         double clock)
{
    const struct schedule *schedule = &run->stage->schedule;
    struct train_progress p = {.stage = run->stage->name,
                               .epoch = now->epoch,
                               .epochs = schedule->epochs,
                               .iteration = now->iteration + 1,
                               .n_iterations = now->n_iterations,
                               .epoch_done = now->iteration + 1 == now->n_iterations,
                               .lr = now->lr,
                               .n_losses = run->stage->n_losses,
                               .loss_names = run->stage->loss_names,
                               .accuracy = -1.0,
                               .iterations_run = run->iterations,
                               .seconds = clock - run->start};
    for (int i = 0; i < p.n_losses; i++)
        p.losses[i] = run->losses[i] / (double)run->images;
    if (run->ranked > 0)
        p.accuracy = 100.0 * (double)run->correct / (double)run->ranked;
    p.images_per_second = (double)run->images_total / p.seconds;
    double epochs_left =
        schedule->epochs - now->epoch - (double)p.iteration / (double)p.n_iterations;
    p.seconds_left = epochs_left * (double)run->stage->data.view->n / p.images_per_second;
    return p;
}

static enum der_status report(struct run *run, const struct moment *now)
{
    const struct train_hooks *hooks = run->hooks;
    if (!hooks)
        return DER_OK;
    double clock = clock_seconds();
    struct train_progress p = progress_of(run, now, clock);
    if (hooks->progress && (p.epoch_done || clock - run->last_report >= PROGRESS_SECONDS)) {
        run->last_report = clock;
        hooks->progress(hooks->user, &p);
    }
    return p.epoch_done && hooks->epoch_done ? hooks->epoch_done(hooks->user, &p) : DER_OK;
}

static enum der_status run_batch(struct run *run, const struct batch *batch,
                                 const struct moment *now)
{
    const struct stage *stage = run->stage;
    const struct augment_spec *spec = stage->data.augment;
    size_t n = (size_t)batch->n;
    size_t image_floats = (size_t)spec->channels * (size_t)spec->height * (size_t)spec->width;
    struct stage_program program;
    TRY(stage->ops->program(stage->self, batch->n, &program));
    TRY(buffer_write(program.image, 0, batch->images, n * image_floats * sizeof(float)));
    TRY(buffer_write(program.labels, 0, batch->labels, n * sizeof *batch->labels));
    TRY(stage->ops->scalars(stage->self, now));
    TRY(sequence_run(program.sequence));
    TRY(add_losses(run, &program, now, batch->n));
    TRY(add_accuracy(run, &program, batch->n));
    run->images += batch->n;
    run->images_total += batch->n;
    run->iterations++;
    return DER_OK;
}

static enum der_status run_epoch(struct run *run, int epoch)
{
    const struct stage *stage = run->stage;
    struct moment now = {.epoch = epoch,
                         .n_iterations = loader_batches(run->loader),
                         .lr = schedule_lr(&stage->schedule, epoch)};
    for (int i = 0; i < stage->n_losses; i++)
        run->losses[i] = 0.0;
    run->images = run->correct = run->ranked = 0;
    if (stage->ops->epoch)
        TRY(stage->ops->epoch(stage->self, epoch));
    TRY(loader_start(run->loader, (uint32_t)epoch, 0));
    for (;; now.iteration++) {
        const struct batch *batch;
        if (train_cancelled(run->hooks))
            return ctx_fail(run->ctx, DER_CANCELLED, "%s: stopped in epoch %d on request",
                            stage->name, epoch + 1);
        TRY(loader_next(run->loader, &batch));
        if (!batch)
            break;
        TRY(run_batch(run, batch, &now));
        bool epoch_done = now.iteration + 1 == now.n_iterations;
        if (epoch_done && stage->ops->epoch_end)
            TRY(stage->ops->epoch_end(stage->self, epoch));
        TRY(report(run, &now));
    }
    return stage->ops->save ? stage->ops->save(stage->self, epoch + 1) : DER_OK;
}

enum der_status train_stage(struct der_ctx *ctx, const struct stage *stage, int first_epoch,
                            const struct train_hooks *hooks)
{
    assert(stage->n_losses <= STAGE_MAX_LOSSES && stage->data.mode == LOADER_TRAIN);
    TRY(schedule_check(ctx, &stage->schedule));
    struct run run = {.ctx = ctx, .stage = stage, .hooks = hooks, .start = clock_seconds()};
    run.ranks = mem_alloc(&ctx->mem, (size_t)stage->data.batch, sizeof *run.ranks);
    if (!run.ranks)
        return ctx_nomem(ctx);
    enum der_status status = loader_new(ctx, &stage->data, &run.loader);
    if (status == DER_OK && loader_batches(run.loader) == 0)
        status = ctx_fail(ctx, DER_ARG, "%s: there are no images to train on", stage->name);
    for (int epoch = first_epoch; epoch < stage->schedule.epochs && status == DER_OK; epoch++)
        status = run_epoch(&run, epoch);
    loader_free(run.loader);
    mem_free(&ctx->mem, run.ranks);
    return status;
}
