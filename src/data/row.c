#include "data/row.h"

void row_tools_init(struct row_tools *tools, struct mem *mem, const struct file_io *io)
{
    *tools = (struct row_tools){.work = {.mem = mem}};
    image_decoder_init(&tools->decoder, mem);
    tools->decoder.io = io;
}

void row_tools_fini(struct row_tools *tools)
{
    image_decoder_fini(&tools->decoder);
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

enum der_status row_make(const struct row_source *source, struct row_tools *tools, int64_t sample,
                         float *dst)
{
    const struct data_part *part = &source->set->part[source->split];
    const struct augment_spec *spec = &source->augment.spec;
    struct augment_draw draw = augment_draw(spec, source->seed, source->epoch, sample);
    struct augment_source image;
    if (part->pixels)
        image = augment_full_size(dataset_view(source->set, source->split, sample));
    else
        TRY(load_file(spec, &draw, &tools->decoder, part->files[sample], &image));
    return augment_apply(&source->augment, &draw, &image, &tools->work, dst);
}
