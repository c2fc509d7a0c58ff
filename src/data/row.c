#include "data/row.h"

#include <stdio.h>

void row_tools_init(struct row_tools *tools, struct mem *mem, const struct file_io *io)
{
    *tools = (struct row_tools){.form = {.mem = mem}, .work = {.mem = mem}};
    image_decoder_init(&tools->decoder, mem);
    tools->decoder.io = io;
}

void row_tools_fini(struct row_tools *tools)
{
    image_decoder_fini(&tools->decoder);
    image_form_fini(&tools->form);
    resample_fini(&tools->work);
}

static enum der_status refuse_size(const struct augment_spec *spec, struct fault *fault,
                                   const char *name, int height, int width)
{
    return fault_set(fault, DER_SHAPE,
                     "%s is an image of %dx%d, the augmentation makes %dx%d without resizing", name,
                     height, width, spec->height, spec->width);
}

enum der_status row_from_image(const struct augment *augment, const struct augment_draw *draw,
                               struct row_tools *tools, const char *name,
                               const struct image_view *image, float *dst)
{
    const struct augment_spec *spec = &augment->spec;
    struct image_view formed;
    if (!augment_fits(spec, image->height, image->width))
        return refuse_size(spec, &tools->decoder.fault, name, image->height, image->width);
    TRY(image_form_apply(&tools->form, image, spec->channels, &formed));
    struct augment_source source = augment_full_size(formed);
    return augment_apply(augment, draw, &source, &tools->work, dst);
}

/* ---- files --------------------------------------------------------------------------------------- */

/* The pixels that a region touches at a scale, whole ones. */
static struct image_box box_of(const struct augment_region *region, int scale)
{
    struct image_box box = {.y = (int)((int64_t)region->y * scale / IMAGE_SCALE_FULL),
                            .x = (int)((int64_t)region->x * scale / IMAGE_SCALE_FULL)};
    box.height = image_scaled(region->y + region->height, scale) - box.y;
    box.width = image_scaled(region->x + region->width, scale) - box.x;
    return box;
}

/* Decodes of the loaded image what its augmentation needs, no larger than needed, and augments that. */
static enum der_status row_from_loaded(const struct augment *augment,
                                       const struct augment_draw *draw, struct row_tools *tools,
                                       float *dst)
{
    const struct augment_spec *spec = &augment->spec;
    struct image_decoder *decoder = &tools->decoder;
    const struct image_info *info = &decoder->info;
    if (!augment_fits(spec, info->height, info->width))
        return refuse_size(spec, &decoder->fault, decoder->name, info->height, info->width);
    struct augment_region region = augment_region(spec, draw, info->height, info->width);
    int scale = IMAGE_SCALE_FULL;
    if (spec->scaled_decode)
        scale =
            image_scale_for(info, region.height, region.width, region.to_height, region.to_width);
    struct augment_source source = {.height = info->height, .width = info->width, .scale = scale};
    if (spec->geometry == AUGMENT_RESIZED_CROP) {
        struct image_box box = box_of(&region, scale);
        source.y = box.y;
        source.x = box.x;
        TRY(image_decode(decoder, spec->channels, scale, &box, &source.image));
    } else {
        TRY(image_decode(decoder, spec->channels, scale, NULL, &source.image));
    }
    return augment_apply(augment, draw, &source, &tools->work, dst);
}

enum der_status row_from_file(const struct augment *augment, const struct augment_draw *draw,
                              struct row_tools *tools, const char *path, float *dst)
{
    TRY(image_load(&tools->decoder, path));
    return row_from_loaded(augment, draw, tools, dst);
}

enum der_status row_from_bytes(const struct augment *augment, const struct augment_draw *draw,
                               struct row_tools *tools, const char *name,
                               const struct file_bytes *bytes, float *dst)
{
    TRY(image_load_bytes(&tools->decoder, name, bytes->data, bytes->size));
    return row_from_loaded(augment, draw, tools, dst);
}

/* ---- samples of a set ---------------------------------------------------------------------------- */

/* A sample that is in memory, as the bytes of `view`. */
static enum der_status use_view(const struct row_source *source, struct row_tools *tools,
                                const struct augment_draw *draw, int64_t sample,
                                const struct image_view *view, float *dst)
{
    const struct augment *augment = &source->augment;
    if (augment_fits(&augment->spec, view->height, view->width))
        return row_from_image(augment, draw, tools, "", view, dst);
    char name[CTX_ERROR_MAX / 2];
    (void)snprintf(name, sizeof name, "sample %lld of %.200s", (long long)sample + 1,
                   source->set->path);
    return refuse_size(&augment->spec, &tools->decoder.fault, name, view->height, view->width);
}

/* A sample that the owner of the set hands out. */
static enum der_status use_source(const struct row_source *source, struct row_tools *tools,
                                  const struct augment_draw *draw, int64_t sample, float *dst)
{
    const struct data_source *owner = &source->set->source;
    struct image_view view = {0};
    if (!owner->read(owner->user, source->split, sample, &view))
        return fault_set(&tools->decoder.fault, DER_IO, "image %lld of %s cannot be had",
                         (long long)sample + 1, source->set->path);
    enum der_status status = use_view(source, tools, draw, sample, &view, dst);
    if (owner->done)
        owner->done(owner->user, &view);
    return status;
}

enum der_status row_make(const struct row_source *source, struct row_tools *tools, int64_t sample,
                         float *dst)
{
    struct data_item item = dataset_item(source->set, source->split, sample);
    struct augment_draw draw =
        augment_draw(&source->augment.spec, source->seed, source->epoch, sample);
    switch (item.place) {
    case DATA_IN_MEMORY:
        return use_view(source, tools, &draw, sample, &item.image, dst);
    case DATA_IN_FILE:
        return row_from_file(&source->augment, &draw, tools, item.file, dst);
    case DATA_FROM_SOURCE:
        break;
    }
    return use_source(source, tools, &draw, sample, dst);
}
