#include "data/augment.h"

#include "core/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    LEVELS = 256,  /* values of a byte */
    FULL_SCALE = 8 /* eighths */
};

_Static_assert(AUGMENT_TRIES + 1 <= RNG_AUGMENT_BLOCKS, "every try needs a block of its own");

/* ---- presets and checks ---------------------------------------------------------------------- */

struct preset {
    const char *name;
    struct augment_spec spec;
};

#define CIFAR100_COLOURS .mean = {.5071f, .4867f, .4408f}, .std = {.2675f, .2565f, .2761f}
#define CIFAR10_COLOURS .mean = {.4914f, .4822f, .4465f}, .std = {.2023f, .1994f, .2010f}
#define IMAGENET_COLOURS .mean = {.485f, .456f, .406f}, .std = {.229f, .224f, .225f}
#define CIFAR_SIZE .channels = 3, .height = 32, .width = 32
#define IMAGENET_SIZE .channels = 3, .height = 224, .width = 224

static const struct preset PRESETS[] = {
    {"cifar100-train",
     {.geometry = AUGMENT_PAD_CROP,
      .pad = 4,
      .flip = true,
      .brightness = 63.0 / 255.0,
      CIFAR_SIZE,
      CIFAR100_COLOURS}},
    {"cifar100-test", {.geometry = AUGMENT_PLAIN, CIFAR_SIZE, CIFAR100_COLOURS}},
    {"cifar10-train",
     {.geometry = AUGMENT_PAD_CROP, .pad = 4, .flip = true, CIFAR_SIZE, CIFAR10_COLOURS}},
    {"cifar10-test", {.geometry = AUGMENT_PLAIN, CIFAR_SIZE, CIFAR10_COLOURS}},
    {"imagenet-train",
     {.geometry = AUGMENT_RESIZED_CROP,
      .min_area = 0.08,
      .max_area = 1.0,
      .min_ratio = 3.0 / 4.0,
      .max_ratio = 4.0 / 3.0,
      .flip = true,
      .scaled_decode = true,
      IMAGENET_SIZE,
      IMAGENET_COLOURS}},
    {"imagenet-test", {.geometry = AUGMENT_SQUASH, .resize = 256, IMAGENET_SIZE, IMAGENET_COLOURS}},
    {"imagenet-test-shorter-side",
     {.geometry = AUGMENT_SHORTER_SIDE, .resize = 256, IMAGENET_SIZE, IMAGENET_COLOURS}},
};

const struct augment_spec *augment_preset(const char *name)
{
    for (size_t i = 0; i < sizeof PRESETS / sizeof *PRESETS; i++)
        if (strcmp(PRESETS[i].name, name) == 0)
            return &PRESETS[i].spec;
    return NULL;
}

static enum der_status check_geometry(struct der_ctx *ctx, const struct augment_spec *spec)
{
    if (spec->channels < 1 || spec->channels > AUGMENT_CHANNELS_MAX || spec->height < 1 ||
        spec->width < 1)
        return ctx_fail(ctx, DER_ARG,
                        "augmentation: result %dx%dx%d, want 1 to %d channels and positive sizes",
                        spec->channels, spec->height, spec->width, AUGMENT_CHANNELS_MAX);
    if (spec->geometry == AUGMENT_PAD_CROP && spec->pad < 0)
        return ctx_fail(ctx, DER_ARG, "augmentation: padding is %d, want 0 or more", spec->pad);
    bool has_resize = spec->geometry == AUGMENT_SQUASH || spec->geometry == AUGMENT_SHORTER_SIDE;
    if (has_resize && (spec->resize < spec->height || spec->resize < spec->width))
        return ctx_fail(ctx, DER_ARG,
                        "augmentation: resize to %d, want at least the %dx%d of the crop",
                        spec->resize, spec->height, spec->width);
    if (spec->geometry == AUGMENT_RESIZED_CROP &&
        !(spec->min_area > 0 && spec->min_area <= spec->max_area && spec->max_area <= 1 &&
          spec->min_ratio > 0 && spec->min_ratio <= spec->max_ratio && isfinite(spec->max_ratio)))
        return ctx_fail(ctx, DER_ARG,
                        "augmentation: areas %g to %g and ratios %g to %g, want ascending pairs, "
                        "areas in (0, 1], ratios above 0",
                        spec->min_area, spec->max_area, spec->min_ratio, spec->max_ratio);
    return DER_OK;
}

enum der_status augment_init(struct der_ctx *ctx, const struct augment_spec *spec,
                             struct augment *augment)
{
    TRY(check_geometry(ctx, spec));
    if (!(spec->brightness >= 0 && isfinite(spec->brightness)))
        return ctx_fail(ctx, DER_ARG, "augmentation: brightness is %g, want 0 or more",
                        spec->brightness);
    for (int c = 0; c < spec->channels; c++)
        if (!isfinite(spec->mean[c]) || !isfinite(spec->std[c]) || !(spec->std[c] > 0))
            return ctx_fail(ctx, DER_ARG,
                            "augmentation: channel %d has mean %g and std %g, want finite numbers "
                            "and a std above 0",
                            c, (double)spec->mean[c], (double)spec->std[c]);

    augment->spec = *spec;
    for (int c = 0; c < spec->channels; c++)
        for (int p = 0; p < LEVELS; p++)
            augment->table[c][p] = ((float)p / 255.0f - spec->mean[c]) / spec->std[c];
    return DER_OK;
}

bool augment_fits(const struct augment_spec *spec, int height, int width)
{
    switch (spec->geometry) {
    case AUGMENT_PLAIN:
        return height > 0 && width > 0 &&
               (spec->adapts || (height == spec->height && width == spec->width));
    case AUGMENT_PAD_CROP:
        return height + 2 * spec->pad >= spec->height && width + 2 * spec->pad >= spec->width;
    default:
        return height > 0 && width > 0;
    }
}

/* ---- chance ---------------------------------------------------------------------------------- */

/* Uniform in [0, 1) with 32 bits. */
static double unit(uint32_t word)
{
    return (double)word * 0x1p-32;
}

/* Uniform in [0, n): the bias of at most n / 2^32 is nothing for sizes of images. */
static int below(uint32_t word, int n)
{
    return (int)(((uint64_t)word * (uint64_t)n) >> 32);
}

struct augment_draw augment_draw(const struct augment_spec *spec, uint64_t seed, uint32_t epoch,
                                 int64_t sample)
{
    uint64_t first = (uint64_t)sample * RNG_AUGMENT_BLOCKS;
    struct rng_block block = rng_at(seed, RNG_AUGMENT, epoch, first);
    struct augment_draw draw = {.place_y = block.word[0], .place_x = block.word[1]};
    draw.flip = spec->flip && block.word[2] >> 31;
    draw.brightness = 1.0f;
    if (spec->brightness > 0) {
        double low = fmax(0.0, 1.0 - spec->brightness);
        double high = 1.0 + spec->brightness;
        draw.brightness = (float)(low + (high - low) * unit(block.word[3]));
    }
    if (spec->geometry == AUGMENT_RESIZED_CROP) {
        for (uint32_t i = 0; i < AUGMENT_TRIES; i++) {
            block = rng_at(seed, RNG_AUGMENT, epoch, first + 1 + i);
            memcpy(draw.tries[i], block.word, sizeof block.word);
        }
    }
    return draw;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* The largest region in the middle whose ratio is allowed: where no try fitted. */
static struct augment_region middle_region(const struct augment_spec *spec, int height, int width)
{
    double ratio = (double)width / (double)height;
    struct augment_region region = {.height = height, .width = width};
    if (ratio < spec->min_ratio)
        region.height = (int)nearbyint(width / spec->min_ratio);
    else if (ratio > spec->max_ratio)
        region.width = (int)nearbyint(height * spec->max_ratio);
    /* Rounding may leave nothing, or more than there is, of images a pixel or two wide. */
    region.height = region.height < 1 ? 1 : region.height > height ? height : region.height;
    region.width = region.width < 1 ? 1 : region.width > width ? width : region.width;
    region.y = (height - region.height) / 2;
    region.x = (width - region.width) / 2;
    return region;
}

/* torchvision's RandomResizedCrop: area = A * U(areas), ratio = exp(U(log ratios)),
 * width = round(sqrt(area * ratio)), height = round(sqrt(area / ratio)); the first of ten tries that
 * lies within the image, somewhere in it. */
static struct augment_region random_region(const struct augment_spec *spec,
                                           const struct augment_draw *draw, int height, int width)
{
    double low = log(spec->min_ratio);
    double high = log(spec->max_ratio);
    for (int i = 0; i < AUGMENT_TRIES; i++) {
        const uint32_t *word = draw->tries[i];
        double share = spec->min_area + (spec->max_area - spec->min_area) * unit(word[0]);
        double area = (double)height * (double)width * share;
        double ratio = exp(low + (high - low) * unit(word[1]));
        double w = nearbyint(sqrt(area * ratio));
        double h = nearbyint(sqrt(area / ratio));
        if (!(w >= 1 && w <= width && h >= 1 && h <= height))
            continue;
        struct augment_region region = {.height = (int)h, .width = (int)w};
        region.y = below(word[2], height - region.height + 1);
        region.x = below(word[3], width - region.width + 1);
        return region;
    }
    return middle_region(spec, height, width);
}

struct augment_region augment_region(const struct augment_spec *spec,
                                     const struct augment_draw *draw, int height, int width)
{
    assert(augment_fits(spec, height, width));
    struct augment_region region = {
        .height = height, .width = width, .to_height = spec->resize, .to_width = spec->resize};
    switch (spec->geometry) {
    case AUGMENT_PLAIN:
        region.to_height = spec->height;
        region.to_width = spec->width;
        break;
    case AUGMENT_PAD_CROP:
        region.height = spec->height;
        region.width = spec->width;
        region.y = below(draw->place_y, height + 2 * spec->pad - spec->height + 1) - spec->pad;
        region.x = below(draw->place_x, width + 2 * spec->pad - spec->width + 1) - spec->pad;
        region.to_height = spec->height;
        region.to_width = spec->width;
        break;
    case AUGMENT_RESIZED_CROP:
        region = random_region(spec, draw, height, width);
        region.to_height = spec->height;
        region.to_width = spec->width;
        break;
    case AUGMENT_SQUASH:
        break;
    case AUGMENT_SHORTER_SIDE:
        /* The longer side is rounded down, as in torchvision. */
        if (width <= height)
            region.to_height = (int)((double)spec->resize * height / width);
        else
            region.to_width = (int)((double)spec->resize * width / height);
        break;
    }
    return region;
}

/* Is an image of this size resized on its way, or only cut? */
static bool is_resized(const struct augment_spec *spec, int height, int width)
{
    if (spec->geometry == AUGMENT_PLAIN)
        return height != spec->height || width != spec->width;
    return spec->geometry != AUGMENT_PAD_CROP;
}

struct augment_source augment_full_size(struct image_view image)
{
    return (struct augment_source){
        .image = image, .height = image.height, .width = image.width, .scale = FULL_SCALE};
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* dst[i * step] = table[src[i * stride]], step being 1 or -1. Four at a time, since the loop itself
 * would else cost as much as the work; steps that are no constants keep compilers from building
 * vectors byte by byte, which is slower. */
static void look_up(float *restrict dst, ptrdiff_t step, int n, const uint8_t *restrict src,
                    ptrdiff_t stride, const float *restrict table)
{
    int i = 0;
    for (; i + 4 <= n; i += 4, src += 4 * stride, dst += 4 * step) {
        float a = table[src[0]];
        float b = table[src[stride]];
        float c = table[src[2 * stride]];
        float d = table[src[3 * stride]];
        dst[0] = a;
        dst[step] = b;
        dst[2 * step] = c;
        dst[3 * step] = d;
    }
    for (; i < n; i++, src += stride, dst += step)
        *dst = table[*src];
}

static void fill(float *dst, int n, float value)
{
    for (int i = 0; i < n; i++)
        dst[i] = value;
}

/* One row of the result: pixel i is column x + i of the source row, or black outside of it. */
static void map_row(float *dst, int width, const uint8_t *row, ptrdiff_t stride, int row_width,
                    int x, bool flip, const float *table)
{
    int begin = x < 0 ? -x : 0;
    int end = row_width - x < width ? row_width - x : width;
    if (end <= begin) {
        fill(dst, width, table[0]);
        return;
    }
    int left = flip ? width - end : begin;
    fill(dst, left, table[0]);
    int n = end - begin;
    look_up(flip ? dst + left + n - 1 : dst + left, flip ? -1 : 1, n, row + (x + begin) * stride,
            stride, table);
    fill(dst + left + n, width - left - n, table[0]);
}

/* dst [channels][height][width] from the rectangle of the image that begins at (y, x). */
static void map_image(const struct augment *augment, const struct augment_draw *draw,
                      const struct image_view *image, int y, int x, const float *tables[],
                      float *dst)
{
    const struct augment_spec *spec = &augment->spec;
    for (int c = 0; c < spec->channels; c++) {
        const uint8_t *plane = image->data + c * image->channel_stride;
        for (int i = 0; i < spec->height; i++, dst += spec->width) {
            bool is_inside = y + i >= 0 && y + i < image->height;
            map_row(dst, spec->width, is_inside ? plane + (y + i) * image->row_stride : plane,
                    image->pixel_stride, is_inside ? image->width : 0, is_inside ? x : 0,
                    draw->flip, tables[c]);
        }
    }
}

/* Brightness on bytes, then the table of the normalisation. Pillow multiplies in float32, limits
 * to [0, 255] and drops the fraction. */
static void bright_tables(const struct augment *augment, float factor, float (*tables)[LEVELS])
{
    for (int p = 0; p < LEVELS; p++) {
        float value = factor * (float)p;
        int level = value >= 255.0f ? 255 : value > 0.0f ? (int)value : 0;
        for (int c = 0; c < augment->spec.channels; c++)
            tables[c][p] = augment->table[c][level];
    }
}

/* Where the middle `wanted` of `size` begins: round((size - wanted) / 2), halves to even. */
static int centre_offset(int size, int wanted)
{
    return (int)nearbyint((size - wanted) / 2.0);
}

/* Cuts the region out of the image, resizes it, and keeps the middle of that. At a reduced scale
 * the region begins and ends within a pixel: the cut takes the whole pixel, the axis says where. */
static enum der_status resize_region(const struct augment_spec *spec,
                                     const struct augment_region *region,
                                     const struct augment_source *source, struct resample *work,
                                     struct image_view *out)
{
    double scale = (double)source->scale / (double)FULL_SCALE;
    double left = region->x * scale - source->x;
    double top = region->y * scale - source->y;
    double right = fmin((region->x + region->width) * scale - source->x, source->image.width);
    double bottom = fmin((region->y + region->height) * scale - source->y, source->image.height);
    assert(left >= 0 && top >= 0 && right > left && bottom > top);
    int x = (int)left;
    int y = (int)top;
    struct image_view cut = source->image;
    cut.data += y * cut.row_stride + x * cut.pixel_stride;
    cut.width = (int)ceil(right) - x;
    cut.height = (int)ceil(bottom) - y;
    struct resample_axis across = {.begin = left - x,
                                   .end = right - x,
                                   .size = region->to_width,
                                   .first = centre_offset(region->to_width, spec->width),
                                   .count = spec->width};
    struct resample_axis down = {.begin = top - y,
                                 .end = bottom - y,
                                 .size = region->to_height,
                                 .first = centre_offset(region->to_height, spec->height),
                                 .count = spec->height};
    return resample_apply(work, &cut, &across, &down, out);
}

enum der_status augment_apply(const struct augment *augment, const struct augment_draw *draw,
                              const struct augment_source *source, struct resample *work,
                              float *dst)
{
    const struct augment_spec *spec = &augment->spec;
    assert(source->image.channels == spec->channels);
    struct augment_region region = augment_region(spec, draw, source->height, source->width);
    bool resizes = is_resized(spec, source->height, source->width);
    struct image_view image = source->image;
    if (resizes) {
        TRY(resize_region(spec, &region, source, work, &image));
        region.y = 0;
        region.x = 0;
    } else {
        assert(source->scale == FULL_SCALE && source->y == 0 && source->x == 0);
    }

    float bright[AUGMENT_CHANNELS_MAX][LEVELS];
    const float *tables[AUGMENT_CHANNELS_MAX];
    bool is_bright = draw->brightness != 1.0f;
    if (is_bright)
        bright_tables(augment, draw->brightness, bright);
    for (int c = 0; c < spec->channels; c++)
        tables[c] = is_bright ? bright[c] : augment->table[c];
    map_image(augment, draw, &image, region.y, region.x, tables, dst);
    return DER_OK;
}
