/*
 * The fingerprint of a data set: a short number that tells whether it is what it was.
 */
#ifndef EXPERIMENT_FINGERPRINT_H
#define EXPERIMENT_FINGERPRINT_H

#include "data/dataset.h"

/* Of a data set, without reading all of it: its kind, sizes, class names and labels; of images in memory some
 * pixels; of images in files all their names below the set's folder, and the sizes of some. Where the set lies
 * does not matter. */
uint64_t fingerprint_dataset(const struct dataset *set);

/* Of all bytes of a file. */
NODISCARD enum der_status fingerprint_file(struct der_ctx *ctx, const char *path, uint64_t *out);

#endif
