#include "data/defaults.h"

#include <math.h>
#include <string.h>

enum { PAD_SHARE = 8, LEVELS = 256 };

static const double SMALLEST_STD =
    1.0 / LEVELS; /* a set of equal pixels still divides by something */

/* Mean and deviation of one channel over all training images, from exact counts. */
static void measure_channel(const struct dataset *set, int channel, float *mean, float *std)
{
    int64_t counts[LEVELS] = {0};
    const struct data_part *part = &set->part[DATA_TRAIN];
    size_t plane = (size_t)set->height * (size_t)set->width;
    for (int64_t i = 0; i < part->n; i++) {
        const uint8_t *pixels =
            part->pixels + ((size_t)i * (size_t)set->channels + (size_t)channel) * plane;
        for (size_t k = 0; k < plane; k++)
            counts[pixels[k]]++;
    }
    double n = (double)part->n * (double)plane;
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
    else if (!set->part[DATA_TRAIN].pixels)
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
