/*
 * Extractors in files: the tensors of one, under a prefix.
 */
#ifndef STORE_STORED_EXTRACTOR_H
#define STORE_STORED_EXTRACTOR_H

#include "io/safetensors.h"
#include "model/extractor.h"

/* Does the file have what a network of this description needs? Takes no memory of its size. *n_tensors grows by
 * the number of its tensors. Whatever is wrong is DER_FORMAT, with a sentence that begins with `source`. */
NODISCARD enum der_status extractor_is_stored(struct der_ctx *ctx, const char *source,
                                              struct safetensors_file *file, const char *prefix,
                                              const struct resnet_spec *spec, int *n_tensors);

/* Such a network with the numbers of the file, which must be finite, and its variances not negative. */
NODISCARD enum der_status extractor_restore(struct backend *be, const char *source,
                                            struct safetensors_file *file, const char *prefix,
                                            const struct resnet_spec *spec, struct extractor **out);

#endif
