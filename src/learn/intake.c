#include "learn/intake.h"

#include "data/collection.h"
#include "data/row.h"

#include <stdlib.h>

enum { LOOKED_AT = 200 };

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
    *out = *image;
    if (image->height == height && image->width == width)
        return DER_OK;
    double scale = (double)picture->scale / IMAGE_SCALE_FULL;
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

static enum der_status take(struct reader *r, const struct intake_options *options,
                            struct dataset *to)
{
    struct image_view picture;
    enum der_status status = read_picture(r, &options->size, &picture);
    if (status == DER_OK)
        status = collection_add(to, r->split, r->from->part[r->split].labels[r->index], &picture);
    else if (status == DER_NOMEM)
        status = ctx_nomem(to->ctx);
    else
        status = ctx_fail(to->ctx, status, "%s", r->tools.decoder.fault.text);
    give_back(r);
    return status;
}

static bool is_skipped(const struct intake_options *options, enum der_status status)
{
    return options->bad_images == BAD_IMAGES_SKIP && loader_can_skip(status);
}

static enum der_status take_all(struct reader *r, const struct intake_options *options,
                                struct dataset *to, int64_t *n_bad)
{
    for (int split = 0; split < DATA_SPLITS; split++) {
        r->split = (enum data_split)split;
        for (r->index = 0; r->index < r->from->part[split].n; r->index++) {
            if (train_cancelled(options->hooks))
                return ctx_fail(to->ctx, DER_CANCELLED,
                                "stopped on request while reading pictures");
            enum der_status status = take(r, options, to);
            if (status == DER_OK)
                continue;
            if (!is_skipped(options, status))
                return status;
            ctx_log(to->ctx, DER_LOG_WARNING, "%s; left out", r->tools.decoder.fault.text);
            ++*n_bad;
        }
    }
    return DER_OK;
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
    struct reader reader = {.from = from};
    struct dataset *to;
    *out = NULL;
    *n_bad = 0;
    TRY(collection_new(ctx, "intake", from->path, options->size.channels, &to));
    row_tools_init(&reader.tools, &ctx->mem, NULL);
    enum der_status status = take_classes(from, to);
    if (status == DER_OK)
        status = take_all(&reader, options, to, n_bad);
    row_tools_fini(&reader.tools);
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
