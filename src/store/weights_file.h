/*
 * Weights that others have trained: a residual network of basic blocks in a safetensors file with torchvision's
 * names, for an extractor to start from.
 *
 * The names may stand behind a prefix ("backbone.", "model."); floats may have any width. A head ("fc.") and the
 * counters "num_batches_tracked" are left aside. Every parameter of the network must be there, and every layer
 * that is there must have its place in the network: a deeper one whose first blocks would fit is not taken for
 * a shallow one.
 */
#ifndef STORE_WEIGHTS_FILE_H
#define STORE_WEIGHTS_FILE_H

#include "io/io_calls.h"
#include "model/extractor.h"

enum { WEIGHTS_PREFIX_MAX = 128 };

struct weights_options {
    const char *path;
    const char *prefix;        /* of the names; NULL: found out */
    const struct io_calls *io; /* may be NULL */
};

/* What was found in a file. */
struct weights_match {
    char prefix[WEIGHTS_PREFIX_MAX];
    int n_used, n_ignored; /* tensors */
};

/* Are these the weights of that network? DER_FORMAT with a sentence otherwise. No weight is read yet. `match`
 * may be NULL. */
NODISCARD enum der_status weights_check(struct der_ctx *ctx, const struct weights_options *options,
                                        const struct resnet_spec *spec,
                                        struct weights_match *match);

/* Fills the parameters and the running statistics of an extractor. After a failure its content is undefined. */
NODISCARD enum der_status weights_load(const struct weights_options *options,
                                       struct extractor *extractor, struct weights_match *match);

/* Writes an extractor as such a file, F32 and without prefix; same weights, same bytes. `io` may be NULL. */
NODISCARD enum der_status weights_write(const struct extractor *extractor,
                                        const struct io_calls *io, const char *path);

#endif
