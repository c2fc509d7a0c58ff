#include "data/row.h"

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

/* The pixels that a region touches at a scale, whole ones. */
static struct image_box box_of(const struct augment_region *region, int scale)
{
    struct image_box box = {.y = (int)((int64_t)region->y * scale / IMAGE_SCALE_FULL),
                            .x = (int)((int64_t)region->x * scale / IMAGE_SCALE_FULL)};
    box.height = image_scaled(region->y + region->height, scale) - box.y;
    box.width = image_scaled(region->x + region->width, scale) - box.x;
    return box;
}

/* Decodes of a file what its augmentation needs, no larger than needed. */
static enum der_status load_file(const struct augment_spec *spec, const struct augment_draw *draw,
                                 struct image_decoder *decoder, const char *path,
                                 struct augment_source *image)
{
    TRY(image_load(decoder, path));
    const struct image_info *info = &decoder->info;
    if (!augment_fits(spec, info->height, info->width))
        return fault_set(&decoder->fault, DER_SHAPE,
                         "%s is an image of %dx%d, the augmentation makes %dx%d without resizing",
                         path, info->height, info->width, spec->height, spec->width);
    struct augment_region region = augment_region(spec, draw, info->height, info->width);
    int scale = IMAGE_SCALE_FULL;
    if (spec->scaled_decode)
        scale =
            image_scale_for(info, region.height, region.width, region.to_height, region.to_width);
    *image = (struct augment_source){.height = info->height, .width = info->width, .scale = scale};
    if (spec->geometry != AUGMENT_RESIZED_CROP)
        return image_decode(decoder, spec->channels, scale, NULL, &image->image);
    struct image_box box = box_of(&region, scale);
    image->y = box.y;
    image->x = box.x;
    return image_decode(decoder, spec->channels, scale, &box, &image->image);
}

/* A sample that is in memory, as the bytes of `view`. */
static enum der_status use_view(const struct row_source *source, struct row_tools *tools,
                                const struct augment_draw *draw, int64_t sample,
                                const struct image_view *view, float *dst)
{
    const struct augment_spec *spec = &source->augment.spec;
    struct image_view formed;
    if (!augment_fits(spec, view->height, view->width))
        return fault_set(&tools->decoder.fault, DER_SHAPE,
                         "image %lld of %s is %dx%d, the augmentation makes %dx%d without resizing",
                         (long long)sample + 1, source->set->path, view->height, view->width,
                         spec->height, spec->width);
    TRY(image_form_apply(&tools->form, view, spec->channels, &formed));
    struct augment_source image = augment_full_size(formed);
    return augment_apply(&source->augment, draw, &image, &tools->work, dst);
}

static enum der_status use_file(const struct row_source *source, struct row_tools *tools,
                                const struct augment_draw *draw, const char *file, float *dst)
{
    struct augment_source image;
    TRY(load_file(&source->augment.spec, draw, &tools->decoder, file, &image));
    return augment_apply(&source->augment, draw, &image, &tools->work, dst);
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
        return use_file(source, tools, &draw, item.file, dst);
    case DATA_FROM_SOURCE:
        break;
    }
    return use_source(source, tools, &draw, sample, dst);
}
