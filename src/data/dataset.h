/*
 * A labelled image set: what it holds, whichever format it came in.
 *
 * Small sets live in memory as bytes; large ones keep the names of their files and are decoded when a
 * loader thread asks; a set may also mix the two, or ask its owner for every image. dataset_item is where
 * all of them look the same. Nothing here knows of devices or training.
 */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "core/arena.h"
#include "core/ctx.h"
#include "core/file.h"

#include <stdbool.h>
#include <stddef.h>

enum data_split { DATA_TRAIN, DATA_TEST, DATA_SPLITS };

/* Bytes of one image, wherever they lie. Strides are in bytes, so that planar (CIFAR, IDX) and
 * interleaved (decoded files) images look the same to whoever reads them. */
struct image_view {
    const uint8_t *data;
    int channels, height, width;
    ptrdiff_t channel_stride, row_stride, pixel_stride;
};

enum data_place { DATA_IN_MEMORY, DATA_IN_FILE, DATA_FROM_SOURCE };

/* Where an image is to be found. Those in memory may have any size and layout, and 1 or 3 channels. */
struct data_item {
    enum data_place place;
    struct image_view image; /* DATA_IN_MEMORY: bytes that stay as long as the set */
    const char *file;        /* DATA_IN_FILE: a path that opens as it is */
};

/* Somebody who has the images of DATA_FROM_SOURCE. */
struct data_source {
    /* Fills `image`, whose bytes stay good until `done` is called with it; false: it cannot be had. Called
     * from any number of threads at once. */
    bool (*read)(void *user, enum data_split split, int64_t index, struct image_view *image);
    void (*done)(void *user, const struct image_view *image); /* may be NULL */
    void *user;
};

/* One split. Images lie in one of three ways; ask dataset_item. */
struct data_part {
    int64_t n;
    int32_t *labels;         /* [n] in [0, n_classes) */
    uint8_t *pixels;         /* [n][channels][height][width], or NULL */
    char **files;            /* [n] paths that open as they are, or NULL */
    struct data_item *items; /* [n] each in its own way, or NULL */
};

struct dataset {
    struct der_ctx *ctx;
    struct arena arena; /* names and paths */
    const char *kind;   /* "cifar100", "cifar10", "idx", "folder", "imagenet", "synth" */
    char *path;         /* as the user gave it */
    int channels;       /* 1 or 3; files and items are converted to it */
    int height, width;  /* of every image; 0 when they differ in size */
    int n_classes;
    char **class_names; /* [n_classes] */
    struct data_part part[DATA_SPLITS];
    struct data_source source; /* of the items that need one */
};

/* What may be asked of dataset_open_with; zero or NULL means the default. */
struct dataset_options {
    const char *class_list;   /* image folders: a file with one class folder a line; only these are
                               * read, and their order is the order of the labels */
    int first_classes;        /* image folders: only the first so many classes in sorted order;
                               * 100 makes ImageNet-100 of ImageNet */
    int channels;             /* image folders: 1 or 3 (default) */
    const struct file_io *io; /* how files are read; NULL: read(2) */
    /* Image folders: receives a sentence for everything that is wrong but can be read past, such as a class
     * without images, which otherwise ends opening; NULL: it does. */
    void (*flaw)(void *user, const char *sentence);
    void *flaw_user;
};

/* Opens the folder (or, for "synth:...", makes the set), recognising its kind. Every failure names the
 * file and what was expected. */
NODISCARD enum der_status dataset_open(struct der_ctx *ctx, const char *path, struct dataset **out);
NODISCARD enum der_status dataset_open_with(struct der_ctx *ctx, const char *path,
                                            const struct dataset_options *options,
                                            struct dataset **out);
void dataset_free(struct dataset *set);

/* Where image `index` of a split is. */
struct data_item dataset_item(const struct dataset *set, enum data_split split, int64_t index);

/* Do all images of the split lie in memory and have the size of the set? */
bool dataset_is_uniform(const struct dataset *set, enum data_split split);

/* View of an image of a split whose images all lie in memory. */
struct image_view dataset_view(const struct dataset *set, enum data_split split, int64_t index);

#endif
