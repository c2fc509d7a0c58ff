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

/* Decodes a file, no larger than its augmentation needs it. */
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
    int scale = IMAGE_SCALE_FULL;
    if (spec->scaled_decode) {
        struct augment_region region = augment_region(spec, draw, info->height, info->width);
        scale =
            image_scale_for(info, region.height, region.width, region.to_height, region.to_width);
    }
    *image = (struct augment_source){.height = info->height, .width = info->width, .scale = scale};
    return image_decode(decoder, spec->channels, scale, &image->image);
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
