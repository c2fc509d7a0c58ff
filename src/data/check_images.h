/*
 * Looks at every image of a set, with several threads. Private to the room.
 */
#ifndef DATA_CHECK_IMAGES_H
#define DATA_CHECK_IMAGES_H

#include "data/check.h"

/* What was seen of an image. */
struct image_seen {
    uint64_t hash; /* of its pixels */
    int height, width;
    char *fault; /* why it does not decode, owned; NULL: it does */
};

/* Fills seen [n], the training images first, then those of the test split. Faults are the caller's to free
 * with mem_free, after a failure too. */
NODISCARD enum der_status check_images(const struct dataset *set,
                                       const struct check_options *options, struct image_seen *seen,
                                       int64_t n);

#endif
