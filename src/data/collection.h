/*
 * Data sets that are put together picture by picture, in memory.
 */
#ifndef DATA_COLLECTION_H
#define DATA_COLLECTION_H

#include "data/dataset.h"

/* An empty set, freed with dataset_free; `kind` (a constant) and `path` are what messages call it. */
NODISCARD enum der_status collection_new(struct der_ctx *ctx, const char *kind, const char *path,
                                         int channels, struct dataset **out);

/* The class of that name, added when it is new. */
NODISCARD enum der_status collection_class(struct dataset *set, const char *name, int32_t *label);

/* Copies a picture, of 1 or 3 channels, to the end of a split; it lies there interleaved and without gaps. The
 * set has a size as long as all pictures have it. */
NODISCARD enum der_status collection_add(struct dataset *set, enum data_split split, int32_t label,
                                         const struct image_view *image);

/* Makes room for `more` samples at the end of a split and counts them; the caller fills items and labels. */
NODISCARD enum der_status collection_grow(struct dataset *set, enum data_split split, int64_t more);

/* A picture that lies interleaved and without gaps. */
struct image_view collection_view(const uint8_t *bytes, int channels, int height, int width);

/* The label of a class; -1: there is none of that name. */
int32_t dataset_find_class(const struct dataset *set, const char *name);

#endif
