#include "data/check_images.h"

#include "core/crew.h"
#include "core/fnv.h"
#include "data/image_file.h"

#include <stdatomic.h>
#include <string.h>

/* Shared by the threads. */
struct inspection {
    const struct dataset *set;
    const struct check_options *options;
    struct image_seen *seen;
    int64_t n;
    atomic_int_fast64_t next; /* image that nobody has taken yet */
    atomic_int_fast64_t done;
    atomic_bool stop;   /* cancelled, or out of memory */
    atomic_bool no_mem; /* the latter */
    struct inspector *inspectors;
};

struct inspector {
    struct inspection *work;
    struct image_decoder decoder;
};

static uint64_t hash_view(const struct image_view *view)
{
    uint64_t hash = FNV_START;
    size_t row = (size_t)view->width * (size_t)view->pixel_stride;
    for (int y = 0; y < view->height; y++)
        hash = fnv_bytes(hash, view->data + y * view->row_stride, row);
    return hash;
}

/* In memory an image is planes without gaps. */
static void look_at_pixels(const struct dataset *set, enum data_split split, int64_t index,
                           struct image_seen *seen)
{
    struct image_view view = dataset_view(set, split, index);
    size_t size = (size_t)view.channels * (size_t)view.height * (size_t)view.width;
    seen->hash = fnv_bytes(FNV_START, view.data, size);
    seen->height = view.height;
    seen->width = view.width;
}

static enum der_status look_at_file(struct inspector *inspector, const char *path,
                                    struct image_seen *seen)
{
    struct image_decoder *decoder = &inspector->decoder;
    struct image_view view;
    enum der_status status = image_load(decoder, path);
    if (status == DER_OK)
        status =
            image_decode(decoder, inspector->work->set->channels, IMAGE_SCALE_FULL, NULL, &view);
    if (status == DER_OK) {
        seen->hash = hash_view(&view);
        seen->height = view.height;
        seen->width = view.width;
        return DER_OK;
    }
    if (status == DER_NOMEM)
        return DER_NOMEM;
    seen->fault = mem_strdup(decoder->mem, decoder->fault.text);
    return seen->fault ? DER_OK : DER_NOMEM;
}

static void look(struct inspector *inspector, int64_t index)
{
    struct inspection *work = inspector->work;
    struct image_seen *seen = &work->seen[index];
    enum data_split split = DATA_TRAIN;
    if (index >= work->set->part[DATA_TRAIN].n) {
        index -= work->set->part[DATA_TRAIN].n;
        split = DATA_TEST;
    }
    const struct data_part *part = &work->set->part[split];
    if (part->pixels) {
        look_at_pixels(work->set, split, index, seen);
    } else if (look_at_file(inspector, part->files[index], seen) != DER_OK) {
        atomic_store(&work->no_mem, true);
        atomic_store(&work->stop, true);
    }
    atomic_fetch_add(&work->done, 1);
}

static bool take(struct inspection *work, int64_t *index)
{
    *index = atomic_fetch_add(&work->next, 1);
    return *index < work->n && !atomic_load(&work->stop);
}

/* The caller's own thread is the one that talks to the outside. */
static void watch(struct inspection *work)
{
    const struct check_options *options = work->options;
    if (options->progress)
        options->progress(options->user, atomic_load(&work->done), work->n);
    if (options->cancelled && options->cancelled(options->user))
        atomic_store(&work->stop, true);
}

static void inspect(void *user, int member)
{
    struct inspection *work = user;
    int64_t index;
    while (take(work, &index)) {
        look(&work->inspectors[member], index);
        if (member == 0)
            watch(work);
    }
}

enum der_status check_images(const struct dataset *set, const struct check_options *options,
                             struct image_seen *seen, int64_t n)
{
    struct der_ctx *ctx = set->ctx;
    struct inspection work = {.set = set, .options = options, .seen = seen, .n = n};
    struct inspector *inspectors = mem_zalloc(&ctx->mem, (size_t)ctx->threads, sizeof *inspectors);
    if (!inspectors)
        return ctx_nomem(ctx);
    for (int i = 0; i < ctx->threads; i++) {
        inspectors[i].work = &work;
        image_decoder_init(&inspectors[i].decoder, &ctx->mem);
    }
    work.inspectors = inspectors;
    enum der_status status = crew_run(ctx, ctx->threads, inspect, &work);
    for (int i = 0; i < ctx->threads; i++)
        image_decoder_fini(&inspectors[i].decoder);
    mem_free(&ctx->mem, inspectors);
    TRY(status);
    if (atomic_load(&work.no_mem))
        return ctx_nomem(ctx);
    if (atomic_load(&work.stop))
        return ctx_fail(ctx, DER_CANCELLED, "%s: stopped after %lld of %lld images", set->path,
                        (long long)atomic_load(&work.done), (long long)n);
    return DER_OK;
}
