#include "data/loader.h"

#include "core/ring.h"
#include "data/row.h"
#include "data/sampler.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* Rows of a piece of work. Small, so that threads share even one batch; fixed, so that nothing
 * depends on how many threads there are. */
enum { CHUNK_ROWS = 8 };

struct chunk {
    struct slot *slot;
    int first, n; /* rows */
};

/* A batch buffer and how far it is. */
struct slot {
    struct batch batch;
    const int64_t *items;    /* [batch.n] positions in the view */
    bool is_ready;           /* filled; only the consumer looks */
    enum der_status *status; /* [capacity] of every row */
    struct fault *faults;    /* [capacity] why a row failed */
    struct chunk *chunks;    /* [chunks per slot] */
    atomic_int left;         /* chunks not yet done */
};

struct worker {
    struct loader *loader;
    pthread_t thread;
    bool is_running;
    struct row_tools tools;
};

/* Work flows round: the consumer pushes chunks of a free slot into `jobs`; the worker that finishes
 * the last chunk of a slot pushes the slot into `done`. Both rings have room for all there is, so
 * no push ever waits. Batch b lives in slot (b - first) mod n_slots. */
struct loader {
    struct der_ctx *ctx;
    struct loader_options options;
    struct row_source source;
    struct sampler sampler;
    size_t image_floats; /* of one row */
    int64_t first, next; /* batches: where the epoch was entered, what comes next */
    int64_t next_issue;  /* batch that the next free slot gets */
    bool is_broken;      /* a batch failed; the epoch is over */
    struct slot *held;   /* lent to the caller */
    int in_flight;       /* slots issued and not yet back */
    struct slot *slots;  /* [n_slots] */
    int n_slots;
    struct worker *workers; /* [threads], or one for the caller itself */
    int n_workers;
    struct ring jobs, done;
    atomic_bool hurry; /* work in flight is not wanted any more */
    atomic_bool is_cancelled;
    bool *is_bad; /* [view->n] reported already */
    int64_t n_bad;
};

/* ---- workers --------------------------------------------------------------------------------- */

static enum der_status fill_row(struct worker *worker, struct slot *slot, int row)
{
    const struct loader *loader = worker->loader;
    struct view_item item = loader->options.view->items[slot->items[row]];
    slot->batch.labels[row] = item.label;
    slot->batch.samples[row] = item.sample;
    return row_make(&loader->source, &worker->tools, item.sample,
                    slot->batch.images + (size_t)row * loader->image_floats);
}

static void fill_chunk(struct worker *worker, const struct chunk *chunk)
{
    struct slot *slot = chunk->slot;
    for (int row = chunk->first; row < chunk->first + chunk->n; row++) {
        if (atomic_load(&worker->loader->hurry))
            return;
        slot->status[row] = fill_row(worker, slot, row);
        if (slot->status[row] != DER_OK)
            slot->faults[row] = worker->tools.decoder.fault;
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct loader *loader = worker->loader;
    void *item;
    while (ring_pop(&loader->jobs, &item)) {
        struct chunk *chunk = item;
        struct slot *slot = chunk->slot;
        fill_chunk(worker, chunk);
        if (atomic_fetch_sub(&slot->left, 1) == 1 && !ring_push(&loader->done, slot))
            break;
    }
    return NULL;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static int chunks_of(int rows)
{
    return (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
}

/* Gives a free slot the next batch, if there is one left. */
static void issue(struct loader *loader, struct slot *slot)
{
    if (loader->next_issue >= sampler_batches(&loader->sampler))
        return;
    slot->batch.number = loader->next_issue++;
    slot->items = sampler_batch(&loader->sampler, slot->batch.number, &slot->batch.n);
    slot->is_ready = false;
    int n_chunks = chunks_of(slot->batch.n);
    atomic_store(&slot->left, n_chunks);
    for (int i = 0; i < n_chunks; i++) {
        int first = i * CHUNK_ROWS;
        int left = slot->batch.n - first;
        slot->chunks[i] = (struct chunk){
            .slot = slot, .first = first, .n = left < CHUNK_ROWS ? left : CHUNK_ROWS};
    }
    if (loader->options.threads == 0)
        return;
    loader->in_flight++;
    /* A push fails only after loader_cancel, and then nobody waits for this slot. */
    for (int i = 0; i < n_chunks; i++)
        if (!ring_push(&loader->jobs, &slot->chunks[i]))
            return;
}

/* One slot comes back from the workers; false after loader_cancel. */
static bool take_back(struct loader *loader)
{
    void *item;
    if (!ring_pop(&loader->done, &item))
        return false;
    ((struct slot *)item)->is_ready = true;
    loader->in_flight--;
    return true;
}

/* Waits until a slot is filled, or fills it. */
static enum der_status await(struct loader *loader, struct slot *slot)
{
    if (loader->options.threads == 0) {
        for (int i = 0; i < chunks_of(slot->batch.n); i++)
            fill_chunk(&loader->workers[0], &slot->chunks[i]);
        slot->is_ready = true;
    }
    while (!slot->is_ready)
        if (!take_back(loader))
            break;
    if (atomic_load(&loader->is_cancelled))
        return ctx_fail(loader->ctx, DER_CANCELLED, "loading was cancelled");
    return DER_OK;
}

/* ---- bad images ------------------------------------------------------------------------------ */

bool loader_can_skip(enum der_status status)
{
    return status == DER_FORMAT || status == DER_IO || status == DER_UNSUPPORTED ||
           status == DER_SHAPE;
}

static void report_bad(struct loader *loader, const struct slot *slot, int row)
{
    bool *is_bad = &loader->is_bad[slot->items[row]];
    if (*is_bad)
        return;
    *is_bad = true;
    loader->n_bad++;
    ctx_log(loader->ctx, DER_LOG_WARNING, "%s; left out", slot->faults[row].text);
}

static void copy_row(const struct loader *loader, struct batch *batch, int to, int from)
{
    if (to == from)
        return;
    memcpy(batch->images + (size_t)to * loader->image_floats,
           batch->images + (size_t)from * loader->image_floats,
           loader->image_floats * sizeof *batch->images);
    batch->labels[to] = batch->labels[from];
    batch->samples[to] = batch->samples[from];
}

/* Every bad row becomes a copy of the next good one, going round; there is at least one. */
static void repeat_good_rows(const struct loader *loader, struct slot *slot)
{
    struct batch *batch = &slot->batch;
    int good = 0;
    while (slot->status[good] != DER_OK)
        good++;
    for (int row = batch->n - 1; row >= 0; row--) {
        if (slot->status[row] == DER_OK)
            good = row;
        else
            copy_row(loader, batch, row, good);
    }
}

static void close_gaps(const struct loader *loader, struct slot *slot)
{
    int n = 0;
    for (int row = 0; row < slot->batch.n; row++)
        if (slot->status[row] == DER_OK)
            copy_row(loader, &slot->batch, n++, row);
    slot->batch.n = n;
}

/* Looks through a filled slot; rows are judged in their order, whoever filled them when. */
static enum der_status judge(struct loader *loader, struct slot *slot)
{
    int n_bad = 0;
    for (int row = 0; row < slot->batch.n; row++) {
        enum der_status status = slot->status[row];
        if (status == DER_OK)
            continue;
        if (status == DER_NOMEM)
            return ctx_nomem(loader->ctx);
        if (loader->options.bad_images == BAD_IMAGES_STOP || !loader_can_skip(status))
            return ctx_fail(loader->ctx, status, "%s", slot->faults[row].text);
        report_bad(loader, slot, row);
        n_bad++;
    }
    if (n_bad == 0)
        return DER_OK;
    if (loader->options.mode == LOADER_EVAL) {
        close_gaps(loader, slot);
        return DER_OK;
    }
    if (n_bad == slot->batch.n)
        return ctx_fail(loader->ctx, DER_FORMAT,
                        "none of the %d images of batch %lld can be used, the first being: %s",
                        slot->batch.n, (long long)slot->batch.number + 1, slot->faults[0].text);
    repeat_good_rows(loader, slot);
    return DER_OK;
}

/* ---- making and ending ----------------------------------------------------------------------- */

enum der_status loader_check(struct der_ctx *ctx, const struct dataset *set, enum data_split split,
                             const struct augment_spec *spec)
{
    if (spec->channels != set->channels && !spec->adapts)
        return ctx_fail(ctx, DER_ARG, "the augmentation is for %d channels, %s has %d",
                        spec->channels, set->path, set->channels);
    if (dataset_is_uniform(set, split) && !augment_fits(spec, set->height, set->width))
        return ctx_fail(ctx, DER_ARG,
                        "the augmentation makes %dx%d without resizing, images of %s are %dx%d",
                        spec->height, spec->width, set->path, set->height, set->width);
    return DER_OK;
}

static bool slot_init(struct mem *mem, struct slot *slot, size_t rows, size_t image_floats)
{
    size_t n_floats;
    struct batch *batch = &slot->batch;
    if (!size_mul(rows, image_floats, &n_floats))
        return false;
    batch->images = mem_alloc(mem, n_floats, sizeof *batch->images);
    batch->labels = mem_alloc(mem, rows, sizeof *batch->labels);
    batch->samples = mem_alloc(mem, rows, sizeof *batch->samples);
    slot->status = mem_zalloc(mem, rows, sizeof *slot->status);
    slot->faults = mem_zalloc(mem, rows, sizeof *slot->faults);
    slot->chunks = mem_alloc(mem, (size_t)chunks_of((int)rows), sizeof *slot->chunks);
    atomic_init(&slot->left, 0);
    return batch->images && batch->labels && batch->samples && slot->status && slot->faults &&
           slot->chunks;
}

static void slot_fini(struct mem *mem, struct slot *slot)
{
    mem_free(mem, slot->batch.images);
    mem_free(mem, slot->batch.labels);
    mem_free(mem, slot->batch.samples);
    mem_free(mem, slot->status);
    mem_free(mem, slot->faults);
    mem_free(mem, slot->chunks);
}

/* Threads inherit a mask that blocks every signal: those are for the program's own thread. */
static enum der_status start_threads(struct loader *loader)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    int n = 0;
    for (; n < loader->options.threads && error == 0; n++) {
        struct worker *worker = &loader->workers[n];
        error = pthread_create(&worker->thread, NULL, worker_main, worker);
        worker->is_running = error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return ctx_fail(loader->ctx, DER_NOMEM, "the system refuses loader thread %d of %d: %s", n,
                        loader->options.threads, strerror(error));
    return DER_OK;
}

static enum der_status loader_alloc(struct loader *loader)
{
    struct der_ctx *ctx = loader->ctx;
    const struct loader_options *options = &loader->options;
    loader->is_bad = mem_zalloc(&ctx->mem, (size_t)options->view->n, sizeof *loader->is_bad);
    loader->slots = mem_zalloc(&ctx->mem, (size_t)loader->n_slots, sizeof *loader->slots);
    loader->workers = mem_zalloc(&ctx->mem, (size_t)loader->n_workers, sizeof *loader->workers);
    if (!loader->is_bad || !loader->slots || !loader->workers)
        return ctx_nomem(ctx);
    for (int i = 0; i < loader->n_workers; i++) {
        struct worker *worker = &loader->workers[i];
        worker->loader = loader;
        row_tools_init(&worker->tools, &ctx->mem, options->io);
    }
    for (int i = 0; i < loader->n_slots; i++)
        if (!slot_init(&ctx->mem, &loader->slots[i], (size_t)options->batch, loader->image_floats))
            return ctx_nomem(ctx);
    TRY(sampler_init(ctx, options->view->n, options->batch, options->mode == LOADER_TRAIN,
                     &loader->sampler));
    TRY(ring_init(ctx, loader->n_slots * chunks_of(options->batch), &loader->jobs));
    return ring_init(ctx, loader->n_slots, &loader->done);
}

enum der_status loader_new(struct der_ctx *ctx, const struct loader_options *options,
                           struct loader **out)
{
    *out = NULL;
    assert(options->batch > 0 && options->threads >= 0 && options->n_buffers >= 0);
    TRY(loader_check(ctx, options->set, options->split, options->augment));
    struct loader *loader = mem_zalloc(&ctx->mem, 1, sizeof *loader);
    if (!loader)
        return ctx_nomem(ctx);
    loader->ctx = ctx;
    loader->options = *options;
    loader->source.set = options->set;
    loader->source.split = options->split;
    loader->source.seed = options->seed;
    loader->sampler.mem = &ctx->mem;
    atomic_init(&loader->hurry, false);
    atomic_init(&loader->is_cancelled, false);
    loader->n_workers = options->threads > 0 ? options->threads : 1;
    loader->n_slots = options->threads == 0    ? 1
                      : options->n_buffers > 0 ? options->n_buffers
                                               : LOADER_BUFFERS;
    loader->image_floats = (size_t)options->augment->channels * (size_t)options->augment->height *
                           (size_t)options->augment->width;
    enum der_status status = augment_init(ctx, options->augment, &loader->source.augment);
    if (status == DER_OK)
        status = loader_alloc(loader);
    if (status == DER_OK)
        status = start_threads(loader);
    if (status != DER_OK) {
        loader_free(loader);
        return status;
    }
    loader->next = sampler_batches(&loader->sampler); /* no epoch has begun */
    *out = loader;
    return DER_OK;
}

void loader_free(struct loader *loader)
{
    if (!loader)
        return;
    struct mem *mem = &loader->ctx->mem;
    atomic_store(&loader->hurry, true);
    if (loader->jobs.slots)
        ring_close(&loader->jobs);
    if (loader->done.slots)
        ring_close(&loader->done);
    for (int i = 0; loader->workers && i < loader->n_workers; i++) {
        struct worker *worker = &loader->workers[i];
        if (worker->is_running)
            pthread_join(worker->thread, NULL);
        if (worker->loader)
            row_tools_fini(&worker->tools);
    }
    ring_fini(&loader->done);
    ring_fini(&loader->jobs);
    sampler_fini(&loader->sampler);
    for (int i = 0; loader->slots && i < loader->n_slots; i++)
        slot_fini(mem, &loader->slots[i]);
    mem_free(mem, loader->workers);
    mem_free(mem, loader->slots);
    mem_free(mem, loader->is_bad);
    mem_free(mem, loader);
}

int64_t loader_batches(const struct loader *loader)
{
    return sampler_batches(&loader->sampler);
}

int64_t loader_bad(const struct loader *loader)
{
    return loader->n_bad;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Waits until no worker touches a slot; they give up at the next row. */
static void drain(struct loader *loader)
{
    atomic_store(&loader->hurry, true);
    while (loader->in_flight > 0 && take_back(loader)) {
    }
    if (!atomic_load(&loader->is_cancelled))
        atomic_store(&loader->hurry, false);
}

enum der_status loader_start(struct loader *loader, uint32_t epoch, int64_t first_batch)
{
    assert(first_batch >= 0 && first_batch <= loader_batches(loader));
    drain(loader);
    if (atomic_load(&loader->is_cancelled))
        return ctx_fail(loader->ctx, DER_CANCELLED, "loading was cancelled");
    sampler_epoch(&loader->sampler, loader->options.seed, epoch);
    loader->source.epoch = epoch;
    loader->first = first_batch;
    loader->next = first_batch;
    loader->next_issue = first_batch;
    loader->is_broken = false;
    loader->held = NULL;
    for (int i = 0; i < loader->n_slots; i++)
        issue(loader, &loader->slots[i]);
    return DER_OK;
}

/* The slot of the next batch, filled and judged. */
static enum der_status fetch(struct loader *loader)
{
    if (loader->held)
        issue(loader, loader->held);
    struct slot *slot = &loader->slots[(loader->next - loader->first) % loader->n_slots];
    loader->held = slot;
    loader->next++;
    TRY(await(loader, slot));
    return judge(loader, slot);
}

enum der_status loader_next(struct loader *loader, const struct batch **out)
{
    *out = NULL;
    while (!loader->is_broken && loader->next < loader_batches(loader)) {
        enum der_status status = fetch(loader);
        if (status != DER_OK) {
            loader->is_broken = true;
            return status;
        }
        /* In evaluation all images of a batch may have been bad: the next one then. */
        if (loader->held->batch.n > 0) {
            *out = &loader->held->batch;
            return DER_OK;
        }
    }
    if (atomic_load(&loader->is_cancelled))
        return ctx_fail(loader->ctx, DER_CANCELLED, "loading was cancelled");
    if (loader->is_broken)
        return ctx_fail(loader->ctx, DER_STATE, "an earlier batch of the epoch failed");
    return DER_OK;
}

void loader_cancel(struct loader *loader)
{
    atomic_store(&loader->is_cancelled, true);
    atomic_store(&loader->hurry, true);
    ring_close(&loader->jobs);
    ring_close(&loader->done);
}
