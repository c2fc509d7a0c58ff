#include "data/row.h"

void row_tools_init(struct row_tools *tools, struct mem *mem, const struct file_io *io)
{
    *tools = (struct row_tools){.work = {.mem = mem}};
    image_decoder_init(&tools->decoder, mem);
    tools->decoder.io = io;
}

void row_tools_fini(struct row_tools *tools)
{
    mem_free(tools->work.mem, tools->pixels);
    tools->pixels = NULL;
    tools->pixels_capacity = 0;
    image_decoder_fini(&tools->decoder);
    resample_fini(&tools->work);
}

/* ---- images in memory ---------------------------------------------------------------------------- */

/* What resampling can read. */
static bool is_dense(const struct image_view *image)
{
    return image->pixel_stride == 1 ||
           (image->channel_stride == 1 && image->pixel_stride == image->channels);
}

/* Copies the image, without gaps and with its channels interleaved; a colour image becomes grey where
 * `channels` is 1. */
static enum der_status pack(struct row_tools *tools, struct image_view *image, int channels)
{
    size_t bytes;
    if (!size_mul((size_t)image->height * (size_t)image->width, (size_t)channels, &bytes))
        return DER_NOMEM;
    if (tools->pixels_capacity < bytes) {
        mem_free(tools->work.mem, tools->pixels);
        tools->pixels = mem_alloc(tools->work.mem, bytes, 1);
        tools->pixels_capacity = tools->pixels ? bytes : 0;
        if (!tools->pixels)
            return DER_NOMEM;
    }
    uint8_t *dst = tools->pixels;
    ptrdiff_t next = image->channel_stride;
    for (int y = 0; y < image->height; y++) {
        const uint8_t *src = image->data + y * image->row_stride;
        for (int x = 0; x < image->width; x++, src += image->pixel_stride) {
            if (channels < image->channels)
                *dst++ = image_luma(src[0], src[next], src[2 * next]);
            else
                for (int c = 0; c < channels; c++)
                    *dst++ = src[c * next];
        }
    }
    *image = (struct image_view){.data = tools->pixels,
                                 .channels = channels,
                                 .height = image->height,
                                 .width = image->width,
                                 .channel_stride = 1,
                                 .row_stride = (ptrdiff_t)image->width * channels,
                                 .pixel_stride = channels};
    return DER_OK;
}

static enum der_status refuse_size(const struct augment_spec *spec, struct fault *fault,
                                   const char *name, int height, int width)
{
    return fault_set(fault, DER_SHAPE,
                     "%s is an image of %dx%d, the augmentation makes %dx%d without resizing", name,
                     height, width, spec->height, spec->width);
}

enum der_status row_from_image(const struct augment *augment, const struct augment_draw *draw,
                               struct row_tools *tools, const struct image_view *image, float *dst)
{
    static const char name[] = "the given picture";
    const struct augment_spec *spec = &augment->spec;
    struct image_view view = *image;
    struct fault *fault = &tools->decoder.fault;
    if (!augment_fits(spec, view.height, view.width))
        return refuse_size(spec, fault, name, view.height, view.width);
    bool becomes_grey = view.channels == 3 && spec->channels == 1;
    bool becomes_colour = view.channels == 1 && spec->channels == 3;
    if (view.channels != spec->channels && !(spec->adapts && (becomes_grey || becomes_colour)))
        return fault_set(fault, DER_SHAPE, "%s has %d channels, want %d", name, view.channels,
                         spec->channels);
    if (becomes_grey || (augment_resizes(spec, view.height, view.width) && !is_dense(&view)))
        TRY(pack(tools, &view, becomes_grey ? 1 : view.channels));
    if (becomes_colour) {
        view.channels = spec->channels;
        view.channel_stride = 0;
    }
    struct augment_source source = augment_full_size(view);
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
                               struct row_tools *tools, const char *name, const uint8_t *data,
                               size_t size, float *dst)
{
    TRY(image_load_bytes(&tools->decoder, name, data, size));
    return row_from_loaded(augment, draw, tools, dst);
}

/* ---- samples of a set ---------------------------------------------------------------------------- */

enum der_status row_make(const struct row_source *source, struct row_tools *tools, int64_t sample,
                         float *dst)
{
    const struct data_part *part = &source->set->part[source->split];
    struct augment_draw draw =
        augment_draw(&source->augment.spec, source->seed, source->epoch, sample);
    if (!part->pixels)
        return row_from_file(&source->augment, &draw, tools, part->files[sample], dst);
    struct image_view image = dataset_view(source->set, source->split, sample);
    return row_from_image(&source->augment, &draw, tools, &image, dst);
}
