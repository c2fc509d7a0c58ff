#include "learn/intake.h"

#include "core/crew.h"
#include "data/collection.h"
#include "data/row.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOKED_AT = 200,
    ROUND = 64, /* pictures that are read before they are added */
};

/* What a picture is read with, and the picture at hand. */
struct reader {
    const struct dataset *from;
    struct row_tools tools;
    enum data_split split;
    int64_t index;
    struct image_view lent; /* by the owner of the set; data is NULL: nothing */
};

static enum der_status blame(struct reader *r, enum der_status status, const char *what)
{
    return fault_set(&r->tools.decoder.fault, status, "image %lld of %s %s",
                     (long long)r->index + 1, r->from->path, what);
}

static void give_back(struct reader *r)
{
    const struct data_source *owner = &r->from->source;
    if (r->lent.data && owner->done)
        owner->done(owner->user, &r->lent);
    r->lent = (struct image_view){0};
}

/* A picture that is in memory or can be lent; *view is empty when it lies in a file. */
static enum der_status borrow(struct reader *r, const struct data_item *item,
                              struct image_view *view)
{
    const struct data_source *owner = &r->from->source;
    *view = (struct image_view){0};
    if (item->place == DATA_IN_MEMORY)
        *view = item->image;
    if (item->place != DATA_FROM_SOURCE)
        return DER_OK;
    if (!owner->read(owner->user, r->split, r->index, &r->lent))
        return blame(r, DER_IO, "cannot be had");
    *view = r->lent;
    return DER_OK;
}

static int shorter_of(int height, int width)
{
    return height < width ? height : width;
}

/* The size that a picture is brought to. The longer side is rounded down, as the test transform does, so that what
 * has this size is not resized once more. */
static void target_of(const struct intake_size *size, int height, int width, int *to_height,
                      int *to_width)
{
    int shorter = shorter_of(height, width);
    *to_height = height;
    *to_width = width;
    if (shorter == size->side || (shorter < size->side && !size->is_exact))
        return;
    *to_height = height == shorter ? size->side : (int)((double)size->side * height / shorter);
    *to_width = width == shorter ? size->side : (int)((double)size->side * width / shorter);
}

/* Decodes a file, for JPEG at a fraction of its size where that is still enough. */
static enum der_status decode(struct reader *r, const char *path, const struct intake_size *size,
                              struct augment_source *picture)
{
    struct image_decoder *decoder = &r->tools.decoder;
    int height;
    int width;
    TRY(image_load(decoder, path));
    const struct image_info *info = &decoder->info;
    target_of(size, info->height, info->width, &height, &width);
    int scale = image_scale_for(info, info->height, info->width, height, width);
    *picture =
        (struct augment_source){.height = info->height, .width = info->width, .scale = scale};
    return image_decode(decoder, size->channels, scale, NULL, &picture->image);
}

/* The picture as it will be kept; *out lies in the tools. */
static enum der_status reduce(struct reader *r, const struct intake_size *size,
                              const struct augment_source *picture, struct image_view *out)
{
    const struct image_view *image = &picture->image;
    int height;
    int width;
    target_of(size, picture->height, picture->width, &height, &width);
    if (height > IMAGE_SIDE_MAX || width > IMAGE_SIDE_MAX)
        return fault_set(&r->tools.decoder.fault, DER_FORMAT,
                         "image %lld of %s is too narrow: enlarged to the model's size it would be "
                         "%d x %d",
                         (long long)r->index + 1, r->from->path, width, height);
    *out = *image;
    if (image->height == height && image->width == width)
        return DER_OK;
    double scale = (double)picture->scale / (double)IMAGE_SCALE_FULL;
    struct resample_axis across = {.end = picture->width * scale, .size = width, .count = width};
    struct resample_axis down = {.end = picture->height * scale, .size = height, .count = height};
    return resample_apply(&r->tools.work, image, &across, &down, out);
}

static enum der_status read_picture(struct reader *r, const struct intake_size *size,
                                    struct image_view *out)
{
    struct data_item item = dataset_item(r->from, r->split, r->index);
    struct augment_source picture;
    struct image_view view;
    TRY(borrow(r, &item, &view));
    if (view.data) {
        TRY(image_form_apply(&r->tools.form, &view, size->channels, &picture.image));
        picture = augment_full_size(picture.image);
    } else {
        TRY(decode(r, item.file, size, &picture));
    }
    return reduce(r, size, &picture, out);
}

/* ---- many of them -------------------------------------------------------------------------------- */

/* A picture on its way into the set. */
struct arrival {
    enum der_status status;
    uint8_t *bytes; /* [height][width][channels], or NULL; owned */
    int height, width;
    struct fault fault; /* when status says so */
};

/* Pictures are read by all threads, some at a time, and added in their order: what comes of it does not depend on
 * the threads. */
struct round {
    const struct intake_options *options;
    struct reader *readers; /* one for each thread */
    struct dataset *to;
    enum data_split split;
    int64_t first;
    int n;
    atomic_int next;   /* picture of the round that nobody has taken yet */
    atomic_bool ended; /* nobody shall take another */
    bool cancelled;    /* on request; the caller's thread writes it */
    struct arrival
        *arrivals; /* [ROUND]; after a failure only those up to it are sure to be there */
};

static enum der_status keep_copy(struct round *round, const struct image_view *picture,
                                 struct arrival *out)
{
    size_t row = (size_t)picture->width * (size_t)picture->channels;
    out->bytes = mem_alloc(&round->to->ctx->mem, (size_t)picture->height, row);
    if (!out->bytes)
        return DER_NOMEM;
    image_form_copy(out->bytes, picture->channels, picture);
    out->height = picture->height;
    out->width = picture->width;
    return DER_OK;
}

static void read_one(struct round *round, struct reader *r, int i)
{
    struct arrival *arrival = &round->arrivals[i];
    struct image_view picture;
    r->split = round->split;
    r->index = round->first + i;
    arrival->status = read_picture(r, &round->options->size, &picture);
    if (arrival->status == DER_OK)
        arrival->status = keep_copy(round, &picture, arrival);
    else
        arrival->fault = r->tools.decoder.fault;
    give_back(r);
}

static bool is_skipped(const struct intake_options *options, enum der_status status)
{
    return options->bad_images == BAD_IMAGES_SKIP && loader_can_skip(status);
}

/* Pictures are taken in their order, so when one ends the round, all before it are read to the end. */
static void read_some(void *user, int member)
{
    struct round *round = user;
    for (;;) {
        if (member == 0 && train_cancelled(round->options->hooks)) {
            round->cancelled = true;
            atomic_store(&round->ended, true);
        }
        if (atomic_load(&round->ended))
            return;
        int i = atomic_fetch_add(&round->next, 1);
        if (i >= round->n)
            return;
        read_one(round, &round->readers[member], i);
        enum der_status status = round->arrivals[i].status;
        if (status != DER_OK && !is_skipped(round->options, status))
            atomic_store(&round->ended, true);
    }
}

static enum der_status add_one(struct round *round, int i, int64_t *n_bad)
{
    const struct arrival *arrival = &round->arrivals[i];
    struct dataset *to = round->to;
    if (arrival->status == DER_OK) {
        struct image_view picture = collection_view(arrival->bytes, round->options->size.channels,
                                                    arrival->height, arrival->width);
        const struct data_part *part = &round->readers[0].from->part[round->split];
        return collection_add(to, round->split, part->labels[round->first + i], &picture);
    }
    if (arrival->status == DER_NOMEM)
        return ctx_nomem(to->ctx);
    if (!is_skipped(round->options, arrival->status))
        return ctx_fail(to->ctx, arrival->status, "%s", arrival->fault.text);
    ctx_log(to->ctx, DER_LOG_WARNING, "%s; left out", arrival->fault.text);
    ++*n_bad;
    return DER_OK;
}

static enum der_status add_all(struct round *round, int64_t *n_bad)
{
    for (int i = 0; i < round->n; i++)
        TRY(add_one(round, i, n_bad));
    return DER_OK;
}

static enum der_status take_round(struct round *round, int64_t *n_bad)
{
    struct der_ctx *ctx = round->to->ctx;
    atomic_store(&round->next, 0);
    memset(round->arrivals, 0, ROUND * sizeof *round->arrivals);
    enum der_status status = crew_run(ctx, ctx->threads, read_some, round);
    if (status == DER_OK && round->cancelled)
        status = ctx_fail(ctx, DER_CANCELLED, "stopped on request while reading pictures");
    if (status == DER_OK)
        status = add_all(round, n_bad);
    for (int i = 0; i < ROUND; i++)
        mem_free(&ctx->mem, round->arrivals[i].bytes);
    return status;
}

static enum der_status take_all(struct round *round, int64_t *n_bad)
{
    for (int split = 0; split < DATA_SPLITS; split++) {
        int64_t n = round->readers[0].from->part[split].n;
        round->split = (enum data_split)split;
        for (round->first = 0; round->first < n; round->first += ROUND) {
            round->n = n - round->first < ROUND ? (int)(n - round->first) : ROUND;
            TRY(take_round(round, n_bad));
        }
    }
    return DER_OK;
}

/* take_all with a reader for each thread. */
static enum der_status take_with_readers(const struct dataset *from,
                                         const struct intake_options *options, struct dataset *to,
                                         int64_t *n_bad)
{
    struct mem *mem = &from->ctx->mem;
    int n = from->ctx->threads;
    struct round round = {.options = options,
                          .to = to,
                          .readers = mem_zalloc(mem, (size_t)n, sizeof *round.readers),
                          .arrivals = mem_alloc(mem, ROUND, sizeof *round.arrivals)};
    enum der_status status = round.readers && round.arrivals ? DER_OK : ctx_nomem(from->ctx);
    for (int i = 0; round.readers && i < n; i++) {
        round.readers[i].from = from;
        row_tools_init(&round.readers[i].tools, mem, NULL);
    }
    if (status == DER_OK)
        status = take_all(&round, n_bad);
    for (int i = 0; round.readers && i < n; i++)
        row_tools_fini(&round.readers[i].tools);
    mem_free(mem, round.readers);
    mem_free(mem, round.arrivals);
    return status;
}

static enum der_status take_classes(const struct dataset *from, struct dataset *to)
{
    for (int c = 0; c < from->n_classes; c++) {
        int32_t label;
        TRY(collection_class(to, from->class_names[c], &label));
        if (label != c)
            return ctx_fail(to->ctx, DER_FORMAT, "class '%s' occurs twice in %s",
                            from->class_names[c], from->path);
    }
    return DER_OK;
}

enum der_status intake(const struct dataset *from, const struct intake_options *options,
                       struct dataset **out, int64_t *n_bad)
{
    struct der_ctx *ctx = from->ctx;
    struct dataset *to;
    *out = NULL;
    *n_bad = 0;
    TRY(collection_new(ctx, "intake", from->path, options->size.channels, &to));
    enum der_status status = take_classes(from, to);
    if (status == DER_OK)
        status = take_with_readers(from, options, to, n_bad);
    if (status != DER_OK) {
        dataset_free(to);
        return status;
    }
    *out = to;
    return DER_OK;
}

/* ---- a look at some of them ---------------------------------------------------------------------- */

/* Height and width; a picture that cannot be read has none, and whoever reads it will say so. */
static enum der_status size_of(struct reader *r, int *height, int *width)
{
    struct data_item item = dataset_item(r->from, r->split, r->index);
    struct image_view view;
    *height = *width = 0;
    enum der_status status = borrow(r, &item, &view);
    if (status == DER_OK && !view.data)
        status = image_load(&r->tools.decoder, item.file);
    if (status == DER_OK) {
        *height = view.data ? view.height : r->tools.decoder.info.height;
        *width = view.data ? view.width : r->tools.decoder.info.width;
    }
    give_back(r);
    return status == DER_NOMEM ? ctx_nomem(r->from->ctx) : DER_OK;
}

static int compare_sides(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static enum der_status look(struct reader *r, struct intake_survey *out)
{
    int sides[LOOKED_AT];
    int64_t n = r->from->part[DATA_TRAIN].n;
    int wanted = n < LOOKED_AT ? (int)n : LOOKED_AT;
    *out = (struct intake_survey){.is_uniform = true};
    for (int i = 0; i < wanted; i++) {
        int height;
        int width;
        r->index = n * i / wanted;
        TRY(size_of(r, &height, &width));
        if (height == 0)
            continue;
        sides[out->n++] = shorter_of(height, width);
        if (height != width || sides[out->n - 1] != sides[0])
            out->is_uniform = false;
    }
    qsort(sides, (size_t)out->n, sizeof *sides, compare_sides);
    out->is_uniform = out->is_uniform && out->n > 0;
    out->shorter = out->n > 0 ? sides[out->n / 2] : 0;
    return DER_OK;
}

enum der_status intake_look(const struct dataset *from, struct intake_survey *out)
{
    struct reader reader = {.from = from, .split = DATA_TRAIN};
    row_tools_init(&reader.tools, &from->ctx->mem, NULL);
    enum der_status status = look(&reader, out);
    row_tools_fini(&reader.tools);
    return status;
}
