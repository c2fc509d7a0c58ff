/*
 * Album files: the pictures that are kept with a model so that it can learn on. Of every class those that are
 * trained on again, best rank first, and those that were held out, by which the class is tested later.
 *
 * In memory an album is a data set whose labels are the order of learning: DATA_TRAIN is what is trained on,
 * DATA_TEST what was held out. All its pictures have the channels of the set.
 */
#ifndef STORE_ALBUM_FILE_H
#define STORE_ALBUM_FILE_H

#include "data/dataset.h"
#include "io/io_calls.h"

/* Writes an album as durable.h does. Its pictures lie in memory, interleaved and without gaps, class by class.
 * `model` is the fingerprint of the model that it belongs to; `io` may be NULL. */
NODISCARD enum der_status album_write(const struct dataset *album, uint64_t model,
                                      const struct io_calls *io, const char *path);

/* Reads one. Whatever is wrong with the file is DER_FORMAT. Caller frees with dataset_free. */
NODISCARD enum der_status album_read(struct der_ctx *ctx, const struct io_calls *io,
                                     const char *path, struct dataset **out);

#endif
