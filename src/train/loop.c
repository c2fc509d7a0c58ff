#include "train/loop.h"

#include "core/clock.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

/* A cross-entropy this large has nothing to do with learning any more. */
static const double DIVERGED_LOSS = 1e6;

/* How often hooks hear of progress within an epoch. */
static const double PROGRESS_SECONDS = 0.2;

/* How long a back end may work before it is looked at. */
static const double LOOK_SECONDS = 0.25;

struct run {
    struct der_ctx *ctx;
    const struct stage *stage;
    const struct train_hooks *hooks;
    struct feeder *feeder;
    float *scalars;       /* [n_iterations][STAGE_MAX_SCALARS] of this epoch */
    float *losses_read;   /* [n_iterations][n_losses] read back */
    int32_t *ranks_read;  /* [n_iterations][batch] likewise */
    double start;         /* clock when the stage began */
    double last_report;   /* clock of the latest progress */
    double last_look;     /* clock when results were read last */
    int64_t images_total; /* seen by this stage so far */
    int64_t iterations;   /* run so far */
    int64_t patience;     /* iterations to run before the next look */
    /* sums of this epoch */
    double losses[STAGE_MAX_LOSSES];
    int64_t images, correct, ranked;
    int64_t added; /* iterations in them */
};

bool train_cancelled(const struct train_hooks *hooks)
{
    return hooks && hooks->cancelled && hooks->cancelled(hooks->user);
}

/* Adds the losses of one iteration, weighted by its images so that the tail counts as what it is. */
static enum der_status add_losses(struct run *run, const float *losses, const struct moment *now,
                                  int64_t n)
{
    const struct stage *stage = run->stage;
    for (int i = 0; i < stage->n_losses; i++) {
        double loss = (double)losses[i];
        if (!isfinite(loss) || fabs(loss) > DIVERGED_LOSS)
            return ctx_fail(run->ctx, DER_NUMERIC,
                            "%s: loss '%s' is %g in epoch %d, batch %" PRId64 " of %" PRId64
                            " at learning rate %g: training has diverged",
                            stage->name, stage->loss_names[i], loss, now->epoch + 1,
                            now->iteration + 1, now->n_iterations, now->lr);
        run->losses[i] += (double)n * loss;
    }
    return DER_OK;
}

/* Reads what iterations gave that are not in the sums yet, and adds it; `now` is the last of them. */
static enum der_status look(struct run *run, const struct moment *now, bool ranked)
{
    const struct stage *stage = run->stage;
    const int64_t first = run->added;
    const int64_t end = now->iteration + 1;
    const int32_t *labels = feeder_labels(run->feeder);
    const int batch = stage->data.batch;
    if (stage->n_losses > 0)
        TRY(feeder_losses(run->feeder, first, end, run->losses_read));
    if (ranked)
        TRY(feeder_ranks(run->feeder, first, end, run->ranks_read));
    for (struct moment then = *now; run->added < end; run->added++) {
        int64_t n = 0;
        then.iteration = run->added;
        const int32_t *rank = run->ranks_read + (then.iteration - first) * batch;
        for (; n < batch && labels[then.iteration * batch + n] >= 0; n++)
            run->correct += ranked && rank[n] == 0;
        TRY(add_losses(run, run->losses_read + (then.iteration - first) * stage->n_losses, &then,
                       n));
        run->ranked += ranked ? n : 0;
        run->images += n;
        run->images_total += n;
    }
    return DER_OK;
}

/* Host back ends are done when a call returns: every iteration is looked at. Others are given work for
 * LOOK_SECONDS, by the pace since the last look. */
static void set_patience(struct run *run, int64_t n)
{
    double clock = clock_seconds();
    double seconds = clock - run->last_look;
    run->last_look = clock;
    run->patience = 1;
    if (run->stage->be->ops->is_device && n > 0 && seconds < (double)n * LOOK_SECONDS)
        run->patience = (int64_t)((double)n * LOOK_SECONDS / seconds);
    if (run->patience > 2 * n) /* the first iterations compile and capture */
        run->patience = 2 * n;
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

/* What every iteration of the epoch will be told. */
static void fill_scalars(struct run *run, struct moment now)
{
    const struct stage *stage = run->stage;
    for (now.iteration = 0; now.iteration < now.n_iterations; now.iteration++) {
        float *scalars = run->scalars + now.iteration * STAGE_MAX_SCALARS;
        for (int i = 0; i < STAGE_MAX_SCALARS; i++)
            scalars[i] = 0.0f;
        stage->ops->scalars(stage->self, &now, scalars);
    }
}

static enum der_status begin_epoch(struct run *run, const struct moment *now)
{
    const struct stage *stage = run->stage;
    for (int i = 0; i < stage->n_losses; i++)
        run->losses[i] = 0.0;
    run->images = run->correct = run->ranked = run->added = 0;
    if (stage->ops->renews && stage->ops->renews(stage->self, now->epoch))
        feeder_forget(run->feeder);
    if (stage->ops->epoch)
        TRY(stage->ops->epoch(stage->self, now->epoch));
    fill_scalars(run, *now);
    return feeder_start(run->feeder, (uint32_t)now->epoch, run->scalars);
}

static enum der_status open_feeder(struct run *run)
{
    const struct stage *stage = run->stage;
    const struct feeder_options options = {.be = stage->be,
                                           .resident = stage->resident,
                                           .data = &stage->data,
                                           .n_losses = stage->n_losses,
                                           .ranks = true};
    return feeder_new(run->ctx, &options, &run->feeder);
}

/* The programs for the batch at hand. The first of a stage needs the most memory of all: where it does not fit
 * beside the images that the back end holds, these make room and come from the host. */
static enum der_status compile(struct run *run, const struct moment *now, int *rows,
                               struct stage_program *program)
{
    const struct stage *stage = run->stage;
    enum der_status status = stage->ops->program(stage->self, *rows, program);
    if (status != DER_NOMEM || run->iterations > 0 || !stage->resident)
        return status;
    feeder_free(run->feeder);
    run->feeder = NULL;
    if (!resident_let_go(stage->resident))
        return status;
    TRY(open_feeder(run));
    TRY(feeder_start(run->feeder, (uint32_t)now->epoch, run->scalars));
    TRY(feeder_next(run->feeder, rows));
    return stage->ops->program(stage->self, *rows, program);
}

static enum der_status run_epoch(struct run *run, int epoch)
{
    const struct stage *stage = run->stage;
    struct moment now = {.epoch = epoch,
                         .n_iterations = feeder_batches(run->feeder),
                         .lr = schedule_lr(&stage->schedule, epoch)};
    TRY(begin_epoch(run, &now));
    for (;; now.iteration++) {
        struct stage_program program;
        int rows;
        if (train_cancelled(run->hooks))
            return ctx_fail(run->ctx, DER_CANCELLED, "%s: stopped in epoch %d on request",
                            stage->name, epoch + 1);
        TRY(feeder_next(run->feeder, &rows));
        if (rows == 0)
            break;
        TRY(compile(run, &now, &rows, &program));
        TRY(feeder_run(run->feeder, &program));
        run->iterations++;
        bool epoch_done = now.iteration + 1 == now.n_iterations;
        const int64_t waiting = now.iteration + 1 - run->added;
        if (!epoch_done && waiting < run->patience)
            continue;
        TRY(look(run, &now, program.rank != NULL));
        set_patience(run, waiting);
        if (epoch_done && stage->ops->epoch_end)
            TRY(stage->ops->epoch_end(stage->self, epoch));
        TRY(report(run, &now));
    }
    return stage->ops->save ? stage->ops->save(stage->self, epoch + 1) : DER_OK;
}

/* Of a batch of one image batch norm would make nothing but its shift. */
static enum der_status refuse_view(const struct run *run)
{
    const struct stage *stage = run->stage;
    if (stage->data.view->n > 0)
        return ctx_fail(run->ctx, DER_ARG,
                        "%s: there is only one image to train on, but a batch needs at least two",
                        stage->name);
    return ctx_fail(run->ctx, DER_ARG, "%s: there are no images to train on", stage->name);
}

static enum der_status open_run(struct run *run)
{
    const struct stage *stage = run->stage;
    struct mem *mem = &run->ctx->mem;
    TRY(open_feeder(run));
    size_t n = (size_t)feeder_batches(run->feeder);
    if (n == 0)
        return refuse_view(run);
    run->scalars = mem_alloc(mem, n, STAGE_MAX_SCALARS * sizeof *run->scalars);
    run->losses_read = mem_alloc(mem, n, STAGE_MAX_LOSSES * sizeof *run->losses_read);
    run->ranks_read = mem_alloc(mem, n, (size_t)stage->data.batch * sizeof *run->ranks_read);
    return run->scalars && run->losses_read && run->ranks_read ? DER_OK : ctx_nomem(run->ctx);
}

enum der_status train_stage(struct der_ctx *ctx, const struct stage *stage, int first_epoch,
                            const struct train_hooks *hooks)
{
    assert(stage->n_losses <= STAGE_MAX_LOSSES && stage->data.mode == LOADER_TRAIN);
    TRY(schedule_check(ctx, &stage->schedule));
    struct run run = {.ctx = ctx,
                      .stage = stage,
                      .hooks = hooks,
                      .start = clock_seconds(),
                      .last_look = clock_seconds(),
                      .patience = 1};
    enum der_status status = open_run(&run);
    for (int epoch = first_epoch; epoch < stage->schedule.epochs && status == DER_OK; epoch++)
        status = run_epoch(&run, epoch);
    feeder_free(run.feeder);
    mem_free(&ctx->mem, run.scalars);
    mem_free(&ctx->mem, run.losses_read);
    mem_free(&ctx->mem, run.ranks_read);
    return status;
}
