/*
 * Labelled pictures: those of a folder or file, or the caller's own.
 *
 *     struct der_data *data;
 *     if (der_data_new(ctx, &data) == DER_OK)
 *         status = der_data_add(data, DER_SPLIT_TRAIN, "cat", &image);
 */
#ifndef DER_DATA_H
#define DER_DATA_H

#include <der/context.h>

#include <stdbool.h>

/* A picture in memory, borrowed for the length of a call: bytes, 0 is black. Strides are in bytes from one
 * channel, row or pixel to the next, and may be negative; all three 0 mean interleaved channels without gaps
 * (R G B R G B ...), which is what most sources deliver. */
struct der_image {
    const uint8_t *pixels; /* the first byte of the top left pixel */
    int channels, height,
        width; /* 1 (grey) or 3 (red, green, blue) channels; a model takes either */
    ptrdiff_t channel_stride, row_stride, pixel_stride;
};

enum der_split { DER_SPLIT_TRAIN, DER_SPLIT_TEST };

/* A set of labelled pictures, used by one thread at a time. */
struct der_data;

struct der_data_info {
    const char *kind; /* "cifar100", "folder", "memory", "source" ...; borrowed */
    int n_classes;
    int64_t n_train, n_test;
    int channels;      /* 1 where all pictures are grey, else 3 */
    int height, width; /* 0 where pictures differ, or where the set does not know */
};

/* Opens what `der train --data` takes: a folder, or "synth:...". class_list names a file with the classes to
 * use of image folders, one a line; NULL: all. Caller frees with der_data_free. */
DER_API DER_NODISCARD enum der_status der_data_open(struct der_ctx *ctx, const char *path,
                                                    const char *class_list, struct der_data **out);

/* An empty set, to be filled with der_data_add. Caller frees with der_data_free. */
DER_API DER_NODISCARD enum der_status der_data_new(struct der_ctx *ctx, struct der_data **out);

/* Adds a copy of a picture to a set of der_data_new. Classes are numbered in the order of their first pictures;
 * names are UTF-8 and not empty. After a failure the set is as before. */
DER_API DER_NODISCARD enum der_status der_data_add(struct der_data *data, enum der_split split,
                                                   const char *class_name,
                                                   const struct der_image *image);

/* Somebody who has pictures and hands them out when they are needed, so that they need not all be in memory. The
 * functions get `user` as their first argument. */
struct der_source {
    int64_t n_train, n_test;
    const char *const *class_names; /* [n_classes], all different, UTF-8, not empty; copied */
    int n_classes;
    /* The class of a picture, from 0; asked once for each by der_data_from_source. */
    int (*label)(void *user, enum der_split split, int64_t index);
    /* Fills `image`; false when that picture cannot be had. Called from any number of threads at once. */
    bool (*read)(void *user, enum der_split split, int64_t index, struct der_image *image);
    /* The bytes of an image that `read` filled are not needed any more; from the same thread. May be NULL. */
    void (*done)(void *user, struct der_image *image);
    void *user;
};

/* A set of such pictures. What `user` points to must stay until der_data_free. */
DER_API DER_NODISCARD enum der_status der_data_from_source(struct der_ctx *ctx,
                                                           const struct der_source *source,
                                                           struct der_data **out);

DER_API void der_data_free(struct der_data *data);

DER_API struct der_data_info der_data_info(const struct der_data *data);

/* The name of class `index`; NULL when there is none. Borrowed. */
DER_API const char *der_data_class(const struct der_data *data, int index);

/* Calls `found` with the path of every JPEG or PNG file (by its ending) below a folder: those of a folder first, then
 * those of the folders below it, sorted bytewise. Hidden entries, and links that lead back to a folder above, are
 * left out. `found` returns false to end the search. */
DER_API DER_NODISCARD enum der_status der_find_images(struct der_ctx *ctx, const char *folder,
                                                      bool (*found)(void *user, const char *path),
                                                      void *user);

#endif
