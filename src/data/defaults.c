#include "data/defaults.h"

#include "data/image_form.h"

#include <math.h>
#include <string.h>

enum { PAD_SHARE = 8, LEVELS = 256 };

static const double SMALLEST_STD =
    1.0 / (double)LEVELS; /* a set of equal pixels still divides by something */

/* The levels of one channel of an image, which may have another number of channels than its set. */
static void count_levels(const struct image_view *image, int channels, int channel,
                         int64_t counts[LEVELS])
{
    ptrdiff_t step = image->channel_stride;
    bool is_grey = image->channels == 3 && channels == 1;
    if (image->channels == 1)
        channel = 0;
    for (int y = 0; y < image->height; y++) {
        const uint8_t *at = image->data + channel * step + y * image->row_stride;
        for (int x = 0; x < image->width; x++, at += image->pixel_stride)
            counts[is_grey ? image_luma(at[0], at[step], at[2 * step]) : *at]++;
    }
}

/* Mean and deviation of one channel over all training images, from exact counts. */
static void measure_channel(const struct dataset *set, int channel, float *mean, float *std)
{
    int64_t counts[LEVELS] = {0};
    const struct data_part *part = &set->part[DATA_TRAIN];
    for (int64_t i = 0; i < part->n; i++) {
        struct image_view image = dataset_view(set, DATA_TRAIN, i);
        count_levels(&image, set->channels, channel, counts);
    }
    double n = (double)part->n * (double)set->height * (double)set->width;
    double sum = 0.0;
    double squares = 0.0;
    for (int level = 0; level < LEVELS; level++) {
        double x = level / 255.0;
        sum += (double)counts[level] * x;
        squares += (double)counts[level] * x * x;
    }
    double variance = squares / n - (sum / n) * (sum / n);
    *mean = (float)(sum / n);
    *std = (float)fmax(sqrt(fmax(variance, 0.0)), SMALLEST_STD);
}

enum der_status augment_defaults(const struct dataset *set, bool training, struct augment_spec *out)
{
    const char *name = NULL;
    if (strcmp(set->kind, "cifar100") == 0)
        name = training ? "cifar100-train" : "cifar100-test";
    else if (strcmp(set->kind, "cifar10") == 0)
        name = training ? "cifar10-train" : "cifar10-test";
    else if (!dataset_is_uniform(set, DATA_TRAIN))
        name = training ? "imagenet-train" : "imagenet-test";
    if (name) {
        *out = *augment_preset(name);
        out->channels = set->channels;
        return DER_OK;
    }
    if (set->channels > AUGMENT_CHANNELS_MAX)
        return ctx_fail(set->ctx, DER_ARG, "images of %d channels cannot be augmented",
                        set->channels);
    *out = (struct augment_spec){.geometry = training ? AUGMENT_PAD_CROP : AUGMENT_PLAIN,
                                 .channels = set->channels,
                                 .height = set->height,
                                 .width = set->width,
                                 .pad = set->height / PAD_SHARE};
    for (int c = 0; c < set->channels; c++)
        measure_channel(set, c, &out->mean[c], &out->std[c]);
    return DER_OK;
}
