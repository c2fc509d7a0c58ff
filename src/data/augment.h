/*
 * Augmentation: from the bytes of an image to the normalised numbers a network reads.
 *
 * Everything up to the normalisation happens on bytes and gives what Pillow and torchvision give:
 * crop (padding with zeros), flip, brightness, then p / 255, minus mean, over std in float32. What
 * is drawn is a pure function of (seed, epoch, sample), so that results depend neither on threads
 * nor on what was drawn before.
 */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H

#include "data/dataset.h"
#include "data/resample.h"

#include <stdbool.h>

enum { AUGMENT_CHANNELS_MAX = 16, AUGMENT_TRIES = 10 };

/* How the pixels of the result are found in the image. */
enum augment_geometry {
    AUGMENT_PLAIN,        /* as they are; the image has the wanted size, or see `adapts` */
    AUGMENT_PAD_CROP,     /* `pad` zeros on every side, then a random place for the crop */
    AUGMENT_RESIZED_CROP, /* a random region of random area and aspect ratio, resized */
    AUGMENT_SQUASH,      /* resized to `resize` x `resize` whatever the aspect ratio, centre crop */
    AUGMENT_SHORTER_SIDE /* resized until the shorter side is `resize`, centre crop */
};

struct augment_spec {
    enum augment_geometry geometry;
    int channels, height, width; /* of the result */
    int pad;                     /* AUGMENT_PAD_CROP */
    int resize;                  /* AUGMENT_SQUASH, AUGMENT_SHORTER_SIDE */
    double min_area, max_area;   /* AUGMENT_RESIZED_CROP: share of the image */
    double min_ratio, max_ratio; /* AUGMENT_RESIZED_CROP: width / height, log-uniform */
    bool flip;                   /* left and right swapped for half of the draws */
    bool scaled_decode;          /* JPEG files may be decoded at 1/2, 1/4, 1/8 of their size where
                                        * that is still at least the size wanted; not Pillow's bytes */
    bool
        adapts; /* AUGMENT_PLAIN: an image of another size is resized, whatever its aspect ratio; and sets
                  * of other channels are taken, whose images are converted */
    double brightness;                /* factor uniform in [1 - b, 1 + b]; 0: none */
    float mean[AUGMENT_CHANNELS_MAX]; /* in units of 1 = white */
    float std[AUGMENT_CHANNELS_MAX];
};

/* What chance decides for one sample in one epoch. Where the size of the image matters, only the
 * random words are here; augment_region makes a place of them. */
struct augment_draw {
    uint32_t place_y, place_x; /* AUGMENT_PAD_CROP */
    bool flip;
    float brightness;                 /* factor; exactly 1: untouched */
    uint32_t tries[AUGMENT_TRIES][4]; /* AUGMENT_RESIZED_CROP: area, ratio, y, x */
};

/* The part of an image that is used, in full-size pixels (it may reach into the padding), and the
 * size it is brought to; the result is the middle of that. */
struct augment_region {
    int y, x, height, width;
    int to_height, to_width;
};

/* A spec that was checked, with its tables. Read-only afterwards: threads share it. */
struct augment {
    struct augment_spec spec;
    float table[AUGMENT_CHANNELS_MAX][256]; /* byte -> normalised value */
};

/* Pixels to work on: an image, or what a decoder made of it. */
struct augment_source {
    struct image_view image;
    int height, width; /* of the image at full size */
    int scale;         /* of `image`, in eighths; 8: full size */
    int y, x; /* where `image` begins in the whole, in pixels of its own scale: a decoder may
                        * leave out what lies around the region */
};

/* Presets by name: "cifar100-train", "cifar100-test", "cifar10-train", "cifar10-test",
 * "imagenet-train", "imagenet-test" (squashed), "imagenet-test-shorter-side". NULL: no such one. */
const struct augment_spec *augment_preset(const char *name);

/* Checks a spec and makes its tables. */
NODISCARD enum der_status augment_init(struct der_ctx *ctx, const struct augment_spec *spec,
                                       struct augment *augment);

/* Can an image of this size be used? */
bool augment_fits(const struct augment_spec *spec, int height, int width);

struct augment_draw augment_draw(const struct augment_spec *spec, uint64_t seed, uint32_t epoch,
                                 int64_t sample);

/* The part of an image of that size which becomes the result. Where it is not resized, to_height and
 * to_width are its own. */
struct augment_region augment_region(const struct augment_spec *spec,
                                     const struct augment_draw *draw, int height, int width);

/* The source for an image at full size. */
struct augment_source augment_full_size(struct image_view image);

/* dst [channels][height][width]. The image must fit and have the channels of the result, and only geometries that resize take one
 * that is not at full size. The only failure is DER_NOMEM, without message. `work` is the
 * calling thread's; geometries that do not resize leave it alone. */
NODISCARD enum der_status augment_apply(const struct augment *augment,
                                        const struct augment_draw *draw,
                                        const struct augment_source *source, struct resample *work,
                                        float *dst);

#endif
